package gateway

import "net/http"

// stackRoom is what the steps of a request need of its goroutine's stack, in bytes.
const stackRoom = 14 << 10

// withStack makes the stack of a request's goroutine as large as its steps need before they are taken. The runtime doubles a stack that is
// full and copies what is on it: on the way down the filters three times for each request, a twelfth of its processor time.
func withStack(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		grow(r.ProtoMajor)
		next.ServeHTTP(w, r)
	})
}

// grow has a frame of [stackRoom] bytes, for which the runtime makes room at once, and reads of it what the compiler does not know, so
// that it is one.
//
//go:noinline
func grow(i int) byte {
	var room [stackRoom]byte
	room[i%stackRoom] = 1
	return room[stackRoom-1-i%stackRoom]
}
