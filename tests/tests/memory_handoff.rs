//! Memory that changes hands: what is refused, what a peer may still do to it, and that tensors never cross a socket.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hippihx_proto::{handoff, v1};
use hippihx_tests::attention::Case;
use hippihx_tests::daemon::Daemon;
use hippihx_tests::wire::{Session, eventually, sealed_memfd, tensor};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Code;

fn memfd(flags: MemfdFlags, size: u64, seals: SealFlags) -> OwnedFd {
    let fd = memfd_create("bad", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags).unwrap();
    ftruncate(&fd, size).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

#[tokio::test]
async fn only_a_sealed_memfd_is_taken() {
    let both = SealFlags::SHRINK | SealFlags::GROW;
    let plain = MemfdFlags::empty();
    let tmpfs = tempfile::tempfile_in("/dev/shm").unwrap();
    tmpfs.set_len(4096).unwrap();
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    let good = memfd(plain, 4096, both);
    let read_only = File::open(format!("/proc/self/fd/{}", good.as_raw_fd())).unwrap();
    let cases: Vec<(&str, OwnedFd, &str)> = vec![
        ("no seals", memfd(plain, 4096, SealFlags::empty()), "F_SEAL_SHRINK"),
        ("only against growing", memfd(plain, 4096, SealFlags::GROW), "F_SEAL_SHRINK"),
        ("only against shrinking", memfd(plain, 4096, SealFlags::SHRINK), "F_SEAL_GROW"),
        ("a file on tmpfs", tmpfs.into(), "memfd"),
        ("a file", file.into(), "memfd"),
        ("a pipe", std::io::pipe().unwrap().0.into(), "memfd"),
        ("a directory", File::open("/").unwrap().into(), "memfd"),
        ("read-only", read_only.into(), "writing"),
        ("sealed against writing", memfd(plain, 4096, both | SealFlags::WRITE), "writing"),
        ("no bytes", memfd(plain, 0, both), "0 bytes"),
        ("huge pages", memfd(MemfdFlags::HUGETLB, 2 << 20, both), "huge pages"),
    ];
    let daemon = Daemon::start("gfx1030");
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    let before = daemon.figures();
    for (what, fd, word) in cases {
        let error = session.import(fd.as_fd()).await.expect_err(what);
        assert_eq!(error.code(), Code::InvalidArgument, "{what}: {error}");
        assert!(error.message().contains(word), "{what}: {error}");
    }
    eventually("figures", async || daemon.figures(), |figures| *figures == before).await;
    // After all that, a good one is taken.
    let buffer = session.share(4096).await.unwrap();
    assert_eq!(buffer.size, 4096);
    assert!(ftruncate(&buffer.file, 0).is_err(), "it cannot shrink any more");
}

#[tokio::test]
async fn more_than_is_allowed_or_there_is_exhaustion() {
    let daemon = Daemon::configured("gfx1030", "[limits]\nbuffer_bytes = 1099511627776\n");
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    // Beyond the limit of the session, and beyond the machine.
    for size in [1_u64 << 41, 1 << 39] {
        assert_eq!(session.allocate(size).await.unwrap_err().code(), Code::ResourceExhausted, "{size}");
        assert_eq!(session.share(size).await.unwrap_err().code(), Code::ResourceExhausted, "{size}");
    }
    assert_eq!(session.stats().await.unwrap().buffer_bytes, 0);
    session.allocate(1 << 20).await.unwrap();
}

#[tokio::test]
async fn what_the_daemon_makes_is_zeroed_and_of_a_fixed_size() {
    let daemon = Daemon::start("gfx1030");
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    let buffer = session.allocate(10_000).await.unwrap();
    assert!(buffer.size >= 10_000);
    assert_eq!(buffer.file.metadata().unwrap().len(), buffer.size);
    let mut bytes = vec![1; buffer.size as usize];
    buffer.file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
    assert!(ftruncate(&buffer.file, 0).is_err() && ftruncate(&buffer.file, 1 << 20).is_err());

    // A hole can be made until the client says that it has mapped the memory, and is filled then.
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let blocks = || rustix::fs::fstat(&buffer.file).unwrap().st_blocks;
    let all = blocks();
    fallocate(&buffer.file, hole, 0, 4096).unwrap();
    assert!(blocks() < all);
    session.exchange(&handoff::Request::Mapped { token: buffer.token }, None).unwrap();
    assert_eq!(blocks(), all);
    assert_eq!(fallocate(&buffer.file, hole, 0, 4096), Err(rustix::io::Errno::PERM));
    assert_eq!(fcntl_add_seals(&buffer.file, SealFlags::EXEC), Err(rustix::io::Errno::PERM));
    // Only what was fetched, and once.
    for token in [buffer.token, buffer.token ^ 1] {
        session.exchange(&handoff::Request::Mapped { token }, None).unwrap_err();
    }
}

#[tokio::test]
async fn a_token_names_one_descriptor_once_in_its_session() {
    let daemon = Daemon::start("gfx1030");
    let mut session = Session::attach(&daemon.socket()).await.unwrap();
    let mut other = Session::attach(&daemon.socket()).await.unwrap();
    let token = session.put(sealed_memfd(4096).as_fd()).unwrap();
    assert_eq!(other.import_token(token).await.unwrap_err().code(), Code::NotFound);
    session.import_token(token).await.unwrap();
    assert_eq!(session.import_token(token).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(session.import_token(token ^ 1).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(session.take(token).unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn descriptors_that_were_never_named_go_with_their_session() {
    let daemon = Daemon::start("gfx1030");
    let mut watching = Session::attach(&daemon.socket()).await.unwrap();
    let before = daemon.figures();
    let session = Session::attach(&daemon.socket()).await.unwrap();
    for _ in 0..20 {
        session.put(sealed_memfd(4096).as_fd()).unwrap();
    }
    assert!(daemon.figures().open_files >= before.open_files + 20);
    drop(session);
    eventually("sessions", async || watching.stats().await.unwrap().sessions.len(), |count| *count == 1).await;
    eventually("open files", async || daemon.figures().open_files, |count| *count == before.open_files).await;
}

#[tokio::test]
async fn ids_are_a_sessions_own() {
    let daemon = Daemon::start("gfx1030");
    let mut first = Session::attach(&daemon.socket()).await.unwrap();
    let mut second = Session::attach(&daemon.socket()).await.unwrap();
    let bound = first.bind_case(&Case::default()).await.unwrap();
    let not_found = |error: tonic::Status| assert_eq!(error.code(), Code::NotFound, "{error}");
    not_found(second.run(bound.binding).await.unwrap_err());
    for release in [
        v1::ReleaseRequest { buffers: vec![bound.buffer.id], ..Default::default() },
        v1::ReleaseRequest { bindings: vec![bound.binding], ..Default::default() },
    ] {
        not_found(second.release(release).await.unwrap_err());
    }
    let plan = second.plan(&Case::default()).await.unwrap().plan;
    assert_eq!(plan, bound.plan.plan, "the same question has the same plan id in both");
    let tensors = bound.inputs.tensors.iter().map(|placed| tensor(placed, bound.buffer.id)).collect();
    not_found(second.bind(v1::BindRequest { plan, tensors, scratch: None }).await.unwrap_err());
    drop(second);
    first.run(bound.binding).await.unwrap();
    bound.verify().unwrap();
}

#[tokio::test]
async fn holes_in_one_sessions_memory_hurt_no_other() {
    let daemon = Daemon::start("gfx1030");
    let mut first = Session::attach(&daemon.socket()).await.unwrap();
    let mut second = Session::attach(&daemon.socket()).await.unwrap();
    let holed = first.bind_case(&Case { lens: vec![300, 200], ..Case::default() }).await.unwrap();
    let whole = second.bind_case(&Case::default()).await.unwrap();
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for _ in 0..20 {
        let (mut client, request) = (first.client.clone(), first.run_request(holed.binding));
        let run = tokio::spawn(async move { client.run(request).await.map(|_| ()) });
        fallocate(&holed.buffer.file, hole, 0, holed.buffer.size).unwrap();
        run.await.unwrap().unwrap();
        second.run(whole.binding).await.unwrap();
    }
    whole.verify().unwrap();
    // All holes: every length is 0, so every row is zeros.
    fallocate(&holed.buffer.file, hole, 0, holed.buffer.size).unwrap();
    first.run(holed.binding).await.unwrap();
    let mut after = vec![1; holed.buffer.size as usize];
    holed.buffer.file.read_exact_at(&mut after, 0).unwrap();
    assert!(after.iter().all(|byte| *byte == 0));
}

/// A socket in front of the daemon's that counts what passes.
async fn counting_proxy(socket: &Path, dir: &Path) -> (PathBuf, Arc<AtomicU64>) {
    let path = dir.join("proxy.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let (to, counted) = (socket.to_owned(), Arc::clone(&count));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let daemon = tokio::net::UnixStream::connect(&to).await.unwrap();
            let ((from_client, to_client), (from_daemon, to_daemon)) = (client.into_split(), daemon.into_split());
            tokio::spawn(pump(from_client, to_daemon, Arc::clone(&counted)));
            tokio::spawn(pump(from_daemon, to_client, Arc::clone(&counted)));
        }
    });
    (path, count)
}

async fn pump(
    mut from: tokio::net::unix::OwnedReadHalf,
    mut to: tokio::net::unix::OwnedWriteHalf,
    count: Arc<AtomicU64>,
) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        count.fetch_add(read as u64, Ordering::Relaxed);
        if to.write_all(&bytes[..read]).await.is_err() {
            break;
        }
    }
}

#[tokio::test]
async fn tensors_never_cross_the_socket() {
    let daemon = Daemon::start("gfx1030");
    let dir = tempfile::tempdir().unwrap();
    let (socket, count) = counting_proxy(&daemon.socket(), dir.path()).await;
    let mut session = Session::attach(&socket).await.unwrap();
    let mut crossed = Vec::new();
    for tokens in [100, 1000] {
        let before = count.load(Ordering::Relaxed);
        let bound = session.bind_case(&Case { lens: vec![tokens; 2], ..Case::default() }).await.unwrap();
        for _ in 0..10 {
            session.run(bound.binding).await.unwrap();
        }
        bound.verify().unwrap();
        crossed.push((bound.buffer.size, count.load(Ordering::Relaxed) - before));
    }
    let [(small, few), (large, more)] = crossed[..] else { panic!("two sizes") };
    assert!(large > 8 * small && few > 0);
    // Ten runs and a bind; integers are a few bytes longer in the larger case, and HTTP/2 pings come and go.
    assert!(more < few + 512, "{few} bytes crossed for {small} bytes of tensors, {more} for {large}");
}
