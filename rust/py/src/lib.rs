//! `falaj._core`: what Python sees of the crate `falaj`.
//!
//! Thin shells without logic: arguments in, one call, result or exception out.

#![deny(unsafe_code)]

/// The compiled half of falaj; import `falaj` instead.
#[pyo3::pymodule(gil_used = true)]
mod _core {
    /// The version of the workspace: one place, Cargo.toml.
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name Python looks for")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
