//! The machine's memory nodes, and binding a mapping to one of them.

use std::ffi::c_void;
use std::{fs, io};

/// Most memory nodes that Linux supports.
const NODES_MAX: u32 = 1024;
const WORDS: usize = NODES_MAX as usize / u64::BITS as usize;
const HAVE_MEMORY: &str = "/sys/devices/system/node/has_memory";

/// Returns the nodes with memory in ascending order; only node 0 where the kernel lists none.
pub fn memory_nodes() -> Vec<u32> {
    let text = fs::read_to_string(HAVE_MEMORY).unwrap_or_default();
    let nodes = parse(text.trim());
    if nodes.is_empty() { vec![0] } else { nodes }
}

/// Parses a kernel's list, for example `0-3,8`.
fn parse(list: &str) -> Vec<u32> {
    let mut nodes = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            nodes.extend(first..=last.min(NODES_MAX - 1));
        }
    }
    nodes
}

/// Makes the kernel allocate the pages of a shared mapping only on `node`, whichever process touches them
/// first.
///
/// # Safety
/// `base` and `len` are of one mapping, which lives during the call.
pub(crate) unsafe fn bind(base: *mut c_void, len: usize, node: u32) -> io::Result<()> {
    if node >= NODES_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut mask = [0_u64; WORDS];
    mask[(node / u64::BITS) as usize] = 1 << (node % u64::BITS);
    // SAFETY: the caller's range is mapped; the kernel reads the mask, which has the promised number
    // of bits (it counts one more than there are), and writes nothing.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            base,
            len,
            libc::MPOL_BIND,
            mask.as_ptr(),
            u64::from(NODES_MAX) + 1,
            0_u32,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_nodes() {
        assert_eq!(parse("0"), [0]);
        assert_eq!(parse("0-2,8,10-11"), [0, 1, 2, 8, 10, 11]);
        for nothing in ["", "x", "1-", "-"] {
            assert!(parse(nothing).is_empty(), "{nothing}");
        }
        assert!(!memory_nodes().is_empty());
    }
}
