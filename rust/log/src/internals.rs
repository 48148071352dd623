//! The engine's modules under one name that users do not see.
//!
//! Owns nothing. The bindings, the harnesses and the benchmarks of this repository name modules of the engine
//! by it. Any release may change them. Invariant: nothing that a user may rely on has a name here alone; the
//! root of the crate lists those.

macro_rules! show {
    ($($module:ident)*) => { $(
        pub mod $module {
            pub use crate::$module::*;
        }
    )* };
}

show!(canary group_commit lock publish shipper sync wake);

#[cfg(not(any(loom, shuttle)))]
show!(consumer error failpoints format log queue segment sink storage store topic);
