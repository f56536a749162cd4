"""Benchmarks. Threads without work sleep, as in every command of dpbench: torch reads this when it is imported."""

from dpbench.support.threads import let_idle_threads_sleep

let_idle_threads_sleep()
