// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime/debug"
	"testing"
)

// TestHeapFloor checks that newHeapFloor allocates nothing if the memory limit is below 8 times
// heapFloor.
func TestHeapFloor(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for limit, want := range map[int64]int{
		128 << 20:       0,
		8*heapFloor - 1: 0,
		8 * heapFloor:   heapFloor,
		1 << 30:         heapFloor,
	} {
		debug.SetMemoryLimit(limit)
		if is := len(newHeapFloor()); is != want {
			t.Errorf("with %d MiB: %d MiB, want %d", limit>>20, is>>20, want>>20)
		}
	}
}
