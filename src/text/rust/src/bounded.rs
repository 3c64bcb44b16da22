//! Runs foreign work (rendering a template, compiling a grammar) within a bound on its memory, stack
//! and time.
//!
//! The template engine counts steps, but one step may build a string or a list of any size. So the
//! work gets a thread of its own whose allocations are counted. An allocation that would pass the
//! bound never returns: there is no way to fail it (the standard library would end the process)
//! nor to unwind from it, so the thread sleeps for ever and its caller is told. That costs a
//! sleeping thread and what it had allocated, so a template that did this is not run again. Checks
//! between the engine's steps could not do it: a single join, replace or list of a few words takes
//! any amount. Nor would ending the thread where it stands: its memory would be lost all the same.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub memory_bytes: usize,
    /// Address space; only what is used becomes memory. Nested values are dropped and compared by
    /// recursion, some hundred bytes of stack for each level.
    pub stack_bytes: usize,
    pub time: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Exceeded {
    Memory,
    Time,
    /// The machine has no thread with such a stack left.
    Thread(String),
}

const UNBOUNDED: usize = usize::MAX;

/// What the thread under a bound and its caller share.
struct Watch {
    caller: Thread,
    is_over_memory: AtomicBool,
    is_abandoned: AtomicBool,
}

thread_local! {
    static LIMIT: Cell<usize> = const { Cell::new(UNBOUNDED) };
    static USED: Cell<usize> = const { Cell::new(0) };
    static WATCH: Cell<*const Watch> = const { Cell::new(std::ptr::null()) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

impl Counting {
    fn grow(bytes: usize) {
        let limit = LIMIT.get();
        if limit == UNBOUNDED {
            return;
        }
        USED.set(USED.get().saturating_add(bytes));
        // SAFETY: the watch of a thread with a limit lives as long as the limit.
        let watch = unsafe { &*WATCH.get() };
        let is_over = USED.get() > limit;
        let has_to_stop = is_over || watch.is_abandoned.load(Ordering::Relaxed);
        // A panic is reported under locks of the standard library, which nobody may sleep with.
        if has_to_stop && !thread::panicking() {
            LIMIT.set(UNBOUNDED);
            watch.is_over_memory.store(is_over, Ordering::Release);
            watch.caller.unpark();
            loop {
                thread::park();
            }
        }
    }

    fn shrink(bytes: usize) {
        if LIMIT.get() != UNBOUNDED {
            USED.set(USED.get().saturating_sub(bytes));
        }
    }
}

// SAFETY: memory comes from the system's allocator with the caller's own layouts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::grow(layout.size());
        System.alloc(layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::grow(layout.size());
        System.alloc_zeroed(layout)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        Self::shrink(layout.size());
        System.dealloc(memory, layout);
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::shrink(layout.size());
        Self::grow(size);
        System.realloc(memory, layout, size)
    }
}

/// The work's result; a panic in it goes on in the caller. The work frees what it allocates,
/// except for its result.
pub fn run<T: Send + 'static>(
    bounds: &Bounds,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Exceeded> {
    let watch = Arc::new(Watch {
        caller: thread::current(),
        is_over_memory: AtomicBool::new(false),
        is_abandoned: AtomicBool::new(false),
    });
    let result = Arc::new(Mutex::new(None));
    let (its_watch, its_result) = (watch.clone(), result.clone());
    let limit = bounds.memory_bytes;
    let worker = thread::Builder::new()
        .stack_size(bounds.stack_bytes)
        .spawn(move || {
            WATCH.set(Arc::as_ptr(&its_watch));
            LIMIT.set(limit);
            let outcome = catch_unwind(AssertUnwindSafe(work));
            LIMIT.set(UNBOUNDED);
            if let Ok(mut slot) = its_result.lock() {
                *slot = Some(outcome);
            }
            its_watch.caller.unpark();
        })
        .map_err(|error| Exceeded::Thread(error.to_string()))?;
    let end = Instant::now() + bounds.time;
    loop {
        if let Some(outcome) = result.lock().ok().and_then(|mut slot| slot.take()) {
            let _ = worker.join();
            return outcome.map_err(|panic| resume_unwind(panic));
        }
        if watch.is_over_memory.load(Ordering::Acquire) {
            return Err(Exceeded::Memory);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            watch.is_abandoned.store(true, Ordering::Relaxed);
            return Err(Exceeded::Time);
        }
        thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        memory_bytes: 1 << 20,
        stack_bytes: 1 << 20,
        time: Duration::from_secs(60),
    };

    #[test]
    fn work_within_the_bounds_gives_its_result() {
        assert_eq!(run(&BOUNDS, || "a".repeat(3)), Ok("aaa".to_owned()));
        // What was freed does not count.
        let rounds = || (0..100).map(|_| vec![1u8; 1 << 19].len()).sum::<usize>();
        assert_eq!(run(&BOUNDS, rounds), Ok(100 << 19));
    }

    #[test]
    fn memory_above_the_bound_ends_it() {
        let double = || {
            let mut text = String::from("ab");
            for _ in 0..60 {
                text = text.repeat(2);
            }
            text.len()
        };
        assert_eq!(run(&BOUNDS, double), Err(Exceeded::Memory));
        let grow = || {
            let mut list = Vec::new();
            loop {
                list.push(list.len());
            }
        };
        assert_eq!(run(&BOUNDS, grow), Err::<(), _>(Exceeded::Memory));
    }

    #[test]
    fn work_that_takes_too_long_is_abandoned() {
        let bounds = Bounds {
            time: Duration::ZERO,
            ..BOUNDS
        };
        let endless = || loop {
            std::hint::black_box(vec![1]);
        };
        assert_eq!(run(&bounds, endless), Err::<(), _>(Exceeded::Time));
    }

    #[test]
    fn a_panic_goes_on_in_the_caller() {
        let caught = catch_unwind(|| run(&BOUNDS, || panic!("a bug")));
        assert!(caught.is_err());
    }
}
