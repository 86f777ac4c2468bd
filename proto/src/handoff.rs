//! Frames of the hand-off socket: a Unix `SOCK_SEQPACKET`, one frame a packet, descriptors beside them by SCM_RIGHTS.
//!
//! The client opens with [`Request::Hello`] and then sends any number of requests, each answered by one [`Reply`]:
//!
//! | request | descriptors with it | answer |
//! |---|---|---|
//! | `Hello { session, secret }` | none | `Done` |
//! | `Put` | one | `Token`: single-use, names the descriptor in gRPC's Import |
//! | `Take { token }` | none | `Done` with one descriptor |
//! | `Mapped { token }` | none | `Done`: what was taken is sealed now, so that nobody can punch holes into it |
//!
//! Integers are little-endian. Every frame starts with the magic and the revision.

use thiserror::Error;

/// First bytes of every frame.
pub const MAGIC: [u8; 4] = *b"hxho";
/// Revision of these frames.
pub const REVISION: u8 = 1;
/// No frame is longer, in bytes.
pub const MAX_FRAME_BYTES: usize = 512;
/// Descriptors that may come with one frame.
pub const MAX_DESCRIPTORS: usize = 1;

const HEADER: usize = 8;
const MAX_TEXT: usize = MAX_FRAME_BYTES - HEADER - 4;

/// What a client sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Hello { session: u64, secret: [u8; crate::SECRET_BYTES] },
    Put,
    Take { token: u64 },
    Mapped { token: u64 },
}

/// What the daemon answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Done,
    Token(u64),
    /// A gRPC code and a sentence.
    Refused {
        code: u32,
        message: String,
    },
}

/// Why bytes are no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("a frame has at least {HEADER} bytes, found {0}")]
    Short(usize),
    #[error("a frame starts with \"hxho\"")]
    Magic,
    #[error("frames of revision {REVISION} are spoken here, found {0}")]
    Revision(u8),
    #[error("the reserved bytes of a frame are zero")]
    Reserved,
    #[error("there is no frame of kind {0}")]
    Kind(u8),
    #[error("a frame of kind {kind} has {expected} bytes of body, found {found}")]
    Length { kind: u8, expected: usize, found: usize },
}

impl Request {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Request::Hello { session, secret } => {
                let mut frame = header(1);
                frame.extend_from_slice(&session.to_le_bytes());
                frame.extend_from_slice(secret);
                frame
            }
            Request::Put => header(2),
            Request::Take { token } | Request::Mapped { token } => {
                let mut frame = header(if matches!(self, Request::Take { .. }) { 3 } else { 4 });
                frame.extend_from_slice(&token.to_le_bytes());
                frame
            }
        }
    }

    /// # Errors
    /// [`FrameError`] for every other sequence of bytes.
    pub fn decode(frame: &[u8]) -> Result<Self, FrameError> {
        match split(frame)? {
            (1, body) => {
                let body = exactly::<24>(1, body)?;
                let (session, secret) = body.split_at(8);
                Ok(Request::Hello { session: word(session), secret: std::array::from_fn(|at| secret[at]) })
            }
            (2, body) => exactly::<0>(2, body).map(|_| Request::Put),
            (3, body) => exactly::<8>(3, body).map(|body| Request::Take { token: word(body) }),
            (4, body) => exactly::<8>(4, body).map(|body| Request::Mapped { token: word(body) }),
            (kind, _) => Err(FrameError::Kind(kind)),
        }
    }
}

impl Reply {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Reply::Done => header(65),
            Reply::Token(token) => {
                let mut frame = header(66);
                frame.extend_from_slice(&token.to_le_bytes());
                frame
            }
            Reply::Refused { code, message } => {
                let mut frame = header(67);
                frame.extend_from_slice(&code.to_le_bytes());
                let mut end = message.len().min(MAX_TEXT);
                while !message.is_char_boundary(end) {
                    end -= 1;
                }
                frame.extend_from_slice(&message.as_bytes()[..end]);
                frame
            }
        }
    }

    /// # Errors
    /// [`FrameError`] for every other sequence of bytes.
    pub fn decode(frame: &[u8]) -> Result<Self, FrameError> {
        match split(frame)? {
            (65, body) => exactly::<0>(65, body).map(|_| Reply::Done),
            (66, body) => exactly::<8>(66, body).map(|body| Reply::Token(word(body))),
            (67, body) => match body.split_first_chunk::<4>() {
                Some((code, text)) => Ok(Reply::Refused {
                    code: u32::from_le_bytes(*code),
                    message: String::from_utf8_lossy(text).into_owned(),
                }),
                None => Err(FrameError::Length { kind: 67, expected: 4, found: body.len() }),
            },
            (kind, _) => Err(FrameError::Kind(kind)),
        }
    }
}

fn header(kind: u8) -> Vec<u8> {
    let mut frame = Vec::with_capacity(64);
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&[REVISION, kind, 0, 0]);
    frame
}

fn split(frame: &[u8]) -> Result<(u8, &[u8]), FrameError> {
    let Some((head, body)) = frame.split_first_chunk::<HEADER>() else { return Err(FrameError::Short(frame.len())) };
    if head[..4] != MAGIC {
        return Err(FrameError::Magic);
    }
    if head[4] != REVISION {
        return Err(FrameError::Revision(head[4]));
    }
    if head[6..] != [0, 0] {
        return Err(FrameError::Reserved);
    }
    Ok((head[5], body))
}

fn exactly<const N: usize>(kind: u8, body: &[u8]) -> Result<&[u8; N], FrameError> {
    body.try_into().map_err(|_| FrameError::Length { kind, expected: N, found: body.len() })
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(session: u64, secret: [u8; 16], token: u64, code: u32, message in ".{0,200}") {
            for request in [Request::Hello { session, secret }, Request::Put, Request::Take { token }, Request::Mapped { token }] {
                prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
            }
            let refused = Reply::Refused { code, message };
            prop_assert!(refused.encode().len() <= MAX_FRAME_BYTES);
            for reply in [Reply::Done, Reply::Token(token)] {
                prop_assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
            }
            if let (Reply::Refused { message: sent, .. }, Ok(Reply::Refused { message: got, .. })) = (&refused, Reply::decode(&refused.encode())) {
                prop_assert!(sent.starts_with(&got) && (got.len() > 400 || got == *sent));
            } else {
                prop_assert!(false, "a refusal came back as something else");
            }
        }

        #[test]
        fn any_bytes_are_a_frame_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64), kind in 0_u8..80) {
            let mut framed = header(kind);
            framed.extend_from_slice(&bytes);
            for frame in [bytes.as_slice(), framed.as_slice()] {
                if let Ok(request) = Request::decode(frame) {
                    prop_assert_eq!(request.encode(), frame.to_vec());
                }
                let _ = Reply::decode(frame);
            }
        }
    }
}
