package main

import (
	"runtime/debug"
	"testing"
)

// TestHeapFloor: the floor never takes what a small memory limit leaves.
func TestHeapFloor(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for limit, want := range map[int64]int{128 << 20: 0, 8*heapFloor - 1: 0, 8 * heapFloor: heapFloor, 1 << 30: heapFloor} {
		debug.SetMemoryLimit(limit)
		if is := len(newHeapFloor()); is != want {
			t.Errorf("with %d MiB: %d MiB, want %d", limit>>20, is>>20, want>>20)
		}
	}
}

// TestThreads: only few threads that nobody chose become more.
func TestThreads(t *testing.T) {
	for _, c := range []struct {
		set                      string
		chosen, processors, want int
	}{
		{"", 1, 1, leastThreads},
		{"", 2, 2, leastThreads},
		{"", 7, 7, leastThreads},
		{"", 8, 8, 8},
		{"", 64, 64, 64},
		{"", 2, 64, 2}, // a limit of two processors
		{"", 2, 4, 2},  // the same on a small machine
		{"2", 2, 2, 2}, // GOMAXPROCS
		{"16", 16, 2, 16},
	} {
		if is := threads(c.set, c.chosen, c.processors); is != c.want {
			t.Errorf("GOMAXPROCS=%q, %d for %d processors: %d, want %d", c.set, c.chosen, c.processors, is, c.want)
		}
	}
}
