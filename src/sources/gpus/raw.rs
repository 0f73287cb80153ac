//! The few calls for which nvml-wrapper has no safe form; the only unsafe code of the crate.
//!
//! Separate so that all of it is on one page. Field values are asked for here because the wrapper always asks for link
//! 0, and the throughput of all links takes another scope; a device's handle is only compared.
#![allow(unsafe_code)]

use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{nvmlFieldValue_t, nvmlProcessInfo_t};

/// "All links", where a field asks for one.
pub(super) const ALL_LINKS: u32 = u32::MAX;

/// Processes for which there is room at most, for the one call that fills it.
const MOST_ROOM: usize = 4096;

/// A field and its scope; 0 where it has none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Query {
    pub(super) field: u32,
    pub(super) scope: u32,
}

/// What marks a device within one session.
pub(super) fn identity(device: &Device<'_>) -> usize {
    // SAFETY: the handle is not used, only its address.
    unsafe { device.handle() }.addr()
}

/// One call for several fields: for each its whole number, or why not.
pub(super) fn field_values(
    nvml: &Nvml,
    device: &Device<'_>,
    queries: &[Query],
) -> Result<Vec<Result<u64, NvmlError>>, NvmlError> {
    let call = nvml.lib().nvmlDeviceGetFieldValues.as_ref().map_err(missing)?;
    let mut values: Vec<nvmlFieldValue_t> = queries
        .iter()
        .map(|query| {
            // SAFETY: a C struct of numbers and a union of numbers, for all of which 0 is a value.
            let mut value: nvmlFieldValue_t = unsafe { std::mem::zeroed() };
            value.fieldId = query.field;
            value.scopeId = query.scope;
            value
        })
        .collect();
    let count = i32::try_from(values.len()).map_err(|_| NvmlError::InvalidArg)?;
    // SAFETY: the device is of this session, and the array is as long as said.
    nvml_try(unsafe { call(device.handle(), count, values.as_mut_ptr()) })?;
    Ok(values.iter().map(whole).collect())
}

/// `nvmlValueType_t` of the header; the wrapper's table ends before the last two.
fn whole(value: &nvmlFieldValue_t) -> Result<u64, NvmlError> {
    nvml_try(value.nvmlReturn)?;
    let negative = |_| NvmlError::UnexpectedVariant(value.valueType);
    // SAFETY: the type says which part of the union was written, and every pattern of bits is a number.
    unsafe {
        match value.valueType {
            1 => Ok(u64::from(value.value.uiVal)),
            2 => Ok(value.value.ulVal),
            3 => Ok(value.value.ullVal),
            4 => u64::try_from(value.value.sllVal).map_err(negative),
            5 => u64::try_from(value.value.siVal).map_err(negative),
            6 => Ok(u64::from(value.value.usVal)),
            other => Err(NvmlError::UnexpectedVariant(other)),
        }
    }
}

/// The compute processes, at most `most`. Mostly one call instead of the wrapper's two, and no list as long as a
/// driver's bug says.
pub(super) fn processes(nvml: &Nvml, device: &Device<'_>, most: usize) -> Result<Vec<nvmlProcessInfo_t>, NvmlError> {
    let call = nvml.lib().nvmlDeviceGetComputeRunningProcesses_v3.as_ref().map_err(missing)?;
    let mut room = most;
    for last in [false, true] {
        // SAFETY: a C struct of numbers.
        let mut list: Vec<nvmlProcessInfo_t> = vec![unsafe { std::mem::zeroed() }; room];
        let mut count = u32::try_from(room).map_err(|_| NvmlError::InvalidArg)?;
        // SAFETY: the device is of this session, and the array is as long as `count` says.
        let result = nvml_try(unsafe { call(device.handle(), &mut count, list.as_mut_ptr()) });
        let found = usize::try_from(count).unwrap_or(room);
        match result {
            // Some more may have started meanwhile.
            Err(NvmlError::InsufficientSize(_)) if !last => room = found.saturating_add(16).min(MOST_ROOM),
            other => {
                other?;
                list.truncate(found.min(most));
                return Ok(list);
            }
        }
    }
    Err(NvmlError::InsufficientSize(None))
}

fn missing(error: &impl std::fmt::Display) -> NvmlError {
    NvmlError::FailedToLoadSymbol(error.to_string())
}
