//! How the allocator treats the memory of large bodies: the system has it back once they are freed.
#![allow(unsafe_code)]

/// Have blocks of 1 MiB and more mapped one by one.
///
/// glibc would raise that bound to the largest block that was freed, up to 32 MiB. Each thread would then keep what a
/// large body took, beyond `limits.bytes_in_flight`, and copy a buffer that grows. musl has a fixed bound of its own.
pub fn give_back_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: mallopt changes a setting of the allocator under the allocator's own lock. It takes no pointer.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
    }
}
