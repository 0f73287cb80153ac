//! NVML's errors in words: what they mean for a whole machine, for one GPU, for one field.
//!
//! Separate because the same code means different things: an unknown error of the library in a container is most often
//! lost access, an unknown error of one field is that field.

use nvml_wrapper::error::NvmlError;

use crate::model::gpu::Absence;
use crate::model::{Failure, FailureKind};

/// Why NVML as a whole cannot be used.
pub(super) fn of_nvml(error: &NvmlError) -> Failure {
    use FailureKind::{Driver, DriverNotLoaded, Missing, Permission, VersionMismatch};
    let (kind, message): (_, String) = match error {
        // glibc has no code for it, only words.
        NvmlError::LibloadingError(cause) if chain(cause).contains("No such file") => (
            Missing,
            "libnvidia-ml.so.1 is not there: no NVIDIA driver is installed, or a container was not given it \
             (NVIDIA_DRIVER_CAPABILITIES needs `utility`); looked for again and again"
                .into(),
        ),
        NvmlError::LibloadingError(cause) => {
            (Driver, format!("libnvidia-ml.so.1 cannot be loaded ({}): install the driver anew", chain(cause)))
        }
        NvmlError::FailedToLoadSymbol(symbol) => {
            (Driver, format!("libnvidia-ml.so.1 is too old or is no NVML ({symbol}): a driver from 2016 on has it"))
        }
        NvmlError::DriverNotLoaded => {
            (DriverNotLoaded, "the NVIDIA driver is not loaded: `modprobe nvidia`, or look for its reason in dmesg".into())
        }
        NvmlError::LibRmVersionMismatch => (
            VersionMismatch,
            "the NVIDIA library and the loaded driver are of different versions, as after an upgrade without a reboot: \
             what runs already goes on, nothing new starts; reboot, or reload the driver when nothing uses it"
                .into(),
        ),
        NvmlError::NoPermission => (
            Permission,
            "this user may not use the NVIDIA driver: see the permissions of /dev/nvidiactl and /dev/nvidia0".into(),
        ),
        NvmlError::Unknown => (Driver, unknown("NVML says `Unknown Error`")),
        other => (Driver, format!("NVML fails: {other}")),
    };
    Failure::new(kind, message)
}

/// Why one GPU cannot be read.
pub(super) fn of_gpu(index: u32, error: &NvmlError) -> Failure {
    let (kind, message) = match error {
        NvmlError::GpuLost => (
            FailureKind::GpuLost,
            format!(
                "GPU {index} is lost: it has fallen off the bus or cannot be reached; look for NVRM and Xid in dmesg. What \
                 ran on it is gone; it comes back with a reset or a reboot, or not at all"
            ),
        ),
        NvmlError::ResetRequired => (
            FailureKind::GpuLost,
            format!(
                "GPU {index} needs a reset before it can be used again: `nvidia-smi --gpu-reset -i {index}`, or reboot"
            ),
        ),
        NvmlError::IrqIssue => {
            (FailureKind::Driver, format!("GPU {index} has an interrupt problem: look for NVRM in dmesg, and reboot"))
        }
        NvmlError::InsufficientPower => {
            (FailureKind::Driver, format!("GPU {index} says that its power cables are not attached properly"))
        }
        NvmlError::OperatingSystem | NvmlError::NoPermission => (
            FailureKind::Permission,
            format!("GPU {index} may not be asked: see the permissions and the device cgroup of /dev/nvidia{index}"),
        ),
        NvmlError::Unknown => (FailureKind::Driver, unknown(&format!("NVML says `Unknown Error` of GPU {index}"))),
        NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch => of_nvml_code(error),
        other => (FailureKind::Driver, format!("GPU {index} cannot be read: {other}")),
    };
    Failure::new(kind, message)
}

fn of_nvml_code(error: &NvmlError) -> (FailureKind, String) {
    let Failure { kind, message } = of_nvml(error);
    (kind, message)
}

fn unknown(what: &str) -> String {
    format!(
        "{what}: in a container that is most often lost access to the devices (a `systemctl daemon-reload` on the host \
         takes it away), and the host may be fine: restart the container; on a host look for NVRM in dmesg"
    )
}

/// Whether the error is one of the whole GPU, or of all of them, rather than of a field.
pub(super) const fn is_of_gpu(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::GpuLost
            | NvmlError::ResetRequired
            | NvmlError::Uninitialized
            | NvmlError::DriverNotLoaded
            | NvmlError::LibRmVersionMismatch
    )
}

/// Why one field cannot be read.
pub(super) const fn of_field(error: &NvmlError) -> Absence {
    match error {
        // An argument that is invalid for this GPU (a sensor, a link) is one that it does not have.
        NvmlError::NotSupported | NvmlError::InvalidArg | NvmlError::NotFound => Absence::NotSupported,
        NvmlError::NoData => Absence::NotAvailable,
        // ARGUMENT_VERSION_MISMATCH and DEPRECATED: the driver knows another version of the call.
        NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound | NvmlError::UnexpectedVariant(25 | 26) => {
            Absence::OldDriver
        }
        // NOT_READY
        NvmlError::UnexpectedVariant(27) => Absence::NotAvailable,
        NvmlError::NoPermission => Absence::NoPermission,
        NvmlError::Utf8Error(_) | NvmlError::IncorrectBits(_) => Absence::Unreadable,
        _ => Absence::Failed,
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        if !text.contains(&error.to_string()) {
            text.push_str(&format!(": {error}"));
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes of NVML's header that say that something is not there, and those that say that something is wrong.
    #[test]
    fn not_there_is_told_from_wrong() {
        for (code, absence) in [
            (2, Absence::NotSupported),
            (3, Absence::NotSupported),
            (4, Absence::NoPermission),
            (6, Absence::NotSupported),
            (13, Absence::OldDriver),
            (21, Absence::NotAvailable),
            (25, Absence::OldDriver),
            (27, Absence::NotAvailable),
            (999, Absence::Failed),
            (12345, Absence::Failed),
        ] {
            assert_eq!(of_field(&NvmlError::from(code)), absence, "{code}");
        }
    }

    #[test]
    fn b39_an_unknown_error_does_not_call_the_gpu_broken() {
        for failure in [of_nvml(&NvmlError::Unknown), of_gpu(3, &NvmlError::Unknown)] {
            assert_eq!(failure.kind, FailureKind::Driver);
            assert!(failure.message.contains("the host may be fine"), "{}", failure.message);
        }
    }
}
