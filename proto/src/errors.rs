//! How a refusal travels: `google.rpc.ErrorInfo` beside the gRPC code.

/// `ErrorInfo.domain` of every error of the daemon.
pub const DOMAIN: &str = "hippihx.v1";
/// `ErrorInfo.metadata` key of the V1 status number.
pub const STATUS_KEY: &str = "status";
/// `ErrorInfo.metadata` key of the field that was wrong.
pub const FIELD_KEY: &str = "field";

/// `ErrorInfo.reason` of failures that the contract has no status for.
pub mod reason {
    /// The daemon is going; attach to the next one and try again.
    pub const DRAINING: &str = "DRAINING";
    /// The code object changed since the bind; bind again.
    pub const STALE_GENERATION: &str = "STALE_GENERATION";
    /// No such id in this session, or an id of another epoch.
    pub const NOT_FOUND: &str = "NOT_FOUND";
    /// A limit of the session or of the machine.
    pub const RESOURCE_EXHAUSTED: &str = "RESOURCE_EXHAUSTED";
    /// The device is gone or stopped answering.
    pub const DEVICE_LOST: &str = "DEVICE_LOST";
    /// The device refused this one launch.
    pub const LAUNCH_FAILED: &str = "LAUNCH_FAILED";
    /// Memory that an earlier daemon owned.
    pub const CONTENTS_LOST: &str = "CONTENTS_LOST";
    /// No session, or a wrong secret.
    pub const UNAUTHENTICATED: &str = "UNAUTHENTICATED";
    /// The caller's uid or gid may not do this.
    pub const PERMISSION_DENIED: &str = "PERMISSION_DENIED";
    /// The request is malformed in a way the contract has no status for.
    pub const INVALID_ARGUMENT: &str = "INVALID_ARGUMENT";
    /// Client and daemon cannot share what was asked for (namespaces, GPU, IPC mode).
    pub const INCOMPATIBLE: &str = "INCOMPATIBLE";
    /// The session ended while the call was under way.
    pub const SESSION_ENDED: &str = "SESSION_ENDED";
    /// The device cannot do this at all.
    pub const UNSUPPORTED: &str = "UNSUPPORTED";
}
