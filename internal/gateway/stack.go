// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

// stackRoom is what the steps of a request need of its goroutine's stack, in bytes. With what
// is on it already that makes one of 16 KB: the runtime keeps no larger ones for the next
// goroutine (stackalloc, Go 1.26).
const stackRoom = 12 << 10

// growStack makes the stack of a request's goroutine as large as its steps need before they are
// taken: its frame has [stackRoom] bytes, for which the runtime makes room at once. It would double
// the stack whenever it is full and copy what is on it, over HTTP/2, where each request has a
// goroutine of its own, several times on the way down the filters: a twelfth of a request's
// processor time. What is returned says nothing: it keeps the frame from being left out.
//
//go:noinline
func growStack(i int) byte {
	var room [stackRoom]byte
	room[i%stackRoom] = 1
	return room[stackRoom-1-i%stackRoom]
}
