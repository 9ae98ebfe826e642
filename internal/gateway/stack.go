// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

// stackBytes is the stack size, in bytes, that the steps of a request need. Together with the stack
// that is already in use, this results in a stack of 16 KB. The runtime does not reuse larger
// stacks for other goroutines (stackalloc, Go 1.26).
const stackBytes = 12 << 10

// growStack grows the stack of a request's goroutine once, before the request's steps run. Its
// frame has [stackBytes] bytes. Otherwise, the runtime doubles and copies the stack several times
// while the filters call each other. Over HTTP/2, each request has its own goroutine, and this
// copying takes a twelfth of the request's processor time. The result has no meaning. It prevents
// the compiler from removing the frame.
//
//go:noinline
func growStack(i int) byte {
	var room [stackBytes]byte
	room[i%stackBytes] = 1
	return room[stackBytes-1-i%stackBytes]
}
