//! The shared-memory ring: layout and both halves as state machines.
