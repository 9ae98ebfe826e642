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
	for name, c := range map[string]struct {
		limit int64
		want  int
	}{
		"a small limit":          {128 << 20, 0},
		"just below the minimum": {8*heapFloor - 1, 0},
		"the minimum":            {8 * heapFloor, heapFloor},
		"above the minimum":      {1 << 30, heapFloor},
	} {
		t.Run(name, func(t *testing.T) {
			debug.SetMemoryLimit(c.limit)
			if is := len(newHeapFloor()); is != c.want {
				t.Errorf("%d MiB, want %d", is>>20, c.want>>20)
			}
		})
	}
}
