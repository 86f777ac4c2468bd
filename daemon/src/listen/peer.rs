//! Who is at the other end, and what they may do.

use tonic::transport::server::UdsConnectInfo;

use crate::config::Config;
use crate::errors::Failure;

/// The kernel's word on a peer (SO_PEERCRED), taken when it connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    pub gid: u32,
    /// 0 across pid namespaces.
    pub pid: u32,
}

impl Peer {
    /// The peer of a gRPC request.
    pub fn of(info: Option<&UdsConnectInfo>) -> Option<Peer> {
        let cred = info?.peer_cred?;
        Some(Peer {
            uid: cred.uid(),
            gid: cred.gid(),
            pid: cred.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0),
        })
    }
}

/// The lists of who may do what.
#[derive(Debug, Clone)]
pub struct Admission {
    own_uid: u32,
    allow_all: bool,
    uids: Vec<u32>,
    gids: Vec<u32>,
    admins: Vec<u32>,
}

impl Admission {
    pub fn new(config: &Config) -> Admission {
        Admission {
            own_uid: rustix::process::geteuid().as_raw(),
            allow_all: config.allow_all,
            uids: config.allow_uids.clone(),
            gids: config.allow_gids.clone(),
            admins: config.admin_uids.clone(),
        }
    }

    /// Whether a peer may use the service at all.
    ///
    /// # Errors
    /// PERMISSION_DENIED with the line that would admit it.
    pub fn admit(&self, peer: &Peer) -> Result<(), Failure> {
        let admitted =
            self.allow_all || self.is_admin(peer) || self.uids.contains(&peer.uid) || self.gids.contains(&peer.gid);
        if admitted {
            return Ok(());
        }
        let mut uids = self.uids.clone();
        uids.push(peer.uid);
        Err(Failure::Denied(format!(
            "uid {} (gid {}) is not admitted; add to the daemon's configuration: allow_uids = {uids:?}",
            peer.uid, peer.gid
        )))
    }

    /// Whether a peer may do what reaches every session: load, reload, drain.
    ///
    /// # Errors
    /// PERMISSION_DENIED with the line that would allow it.
    pub fn admit_admin(&self, peer: &Peer, what: &str) -> Result<(), Failure> {
        if self.is_admin(peer) {
            return Ok(());
        }
        let mut admins = self.admins.clone();
        admins.push(peer.uid);
        Err(Failure::Denied(format!(
            "{what} is for admins, since it reaches every session; uid {} is none: admin_uids = {admins:?} would make it one",
            peer.uid
        )))
    }

    pub fn is_admin(&self, peer: &Peer) -> bool {
        peer.uid == 0 || peer.uid == self.own_uid || self.admins.contains(&peer.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_decide_and_the_refusal_says_what_would_admit() {
        let config = Config { allow_uids: vec![1000], allow_gids: vec![50], admin_uids: vec![7], ..Config::default() };
        let admission = Admission { own_uid: 990, ..Admission::new(&config) };
        let peer = |uid, gid| Peer { uid, gid, pid: 0 };
        for (uid, gid) in [(0, 9), (990, 9), (1000, 9), (2000, 50), (7, 9)] {
            assert!(admission.admit(&peer(uid, gid)).is_ok(), "{uid}:{gid}");
        }
        let text = admission.admit(&peer(2000, 51)).unwrap_err().to_string();
        assert!(text.contains("allow_uids = [1000, 2000]"), "{text}");
        assert!(admission.admit_admin(&peer(7, 1), "load").is_ok());
        let text = admission.admit_admin(&peer(1000, 1), "load").unwrap_err().to_string();
        assert!(text.contains("admin_uids = [7, 1000]"), "{text}");
        let open = Admission { own_uid: 990, ..Admission::new(&Config { allow_all: true, ..Config::default() }) };
        assert!(open.admit(&peer(4, 4)).is_ok() && open.admit_admin(&peer(4, 4), "load").is_err());
    }
}
