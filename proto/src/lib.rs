//! Every message and frame that crosses a process boundary.
