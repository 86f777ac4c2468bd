//! The Rust client of the hippihx kernel daemon.
//!
//! ```no_run
//! # async fn example() -> Result<(), hippihx_client::Error> {
//! use hippihx_client::{Options, PlanSpec, Session};
//!
//! let session = Session::attach("/run/hippihx/0/hippihx.sock", Options::named("my engine")).await?;
//! let spec = PlanSpec::new("attention.fa_fdot2", "gfx1030");
//! let plan = session.plan(&spec).await?;
//! # Ok(()) }
//! ```
//!
//! A [`Session`] outlives daemons. When the daemon goes, or its code object changes, the next call attaches again, imports the
//! shared buffers again, and plans and binds again. What cannot be done twice is never done twice: a run that was on its
//! way when the connection broke is reported as [`Error::RunLost`], and memory that the old daemon owned as
//! [`Error::ContentsLost`].

mod connection;
mod error;
mod handoff;
mod memory;
mod session;

pub use connection::{Stub, channel, connect};
pub use error::{Error, Refusal};
pub use memory::{Element, SharedMemory, View};
pub use session::{Binding, Buffer, Options, Plan, PlanSpec, RunReport, Sequence, Session, Step, TensorRef};
