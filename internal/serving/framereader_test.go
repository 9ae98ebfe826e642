package serving

import (
	"bytes"
	"testing"

	"golang.org/x/net/http2"
)

// TestIdleFrames: the reader distinguishes frames that request nothing from others.
func TestIdleFrames(t *testing.T) {
	for what, c := range map[string]struct {
		write func(f *http2.Framer) error
		idle  int
	}{
		"HEADERS": {func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("abc")})
		}, 0},
		"CONTINUATION":       {func(f *http2.Framer) error { return f.WriteContinuation(1, true, []byte("abc")) }, 0},
		"empty CONTINUATION": {func(f *http2.Framer) error { return f.WriteContinuation(1, false, nil) }, 1},
		"DATA":               {func(f *http2.Framer) error { return f.WriteData(1, false, []byte("x")) }, 0},
		"the last DATA":      {func(f *http2.Framer) error { return f.WriteData(1, true, nil) }, 0},
		"empty DATA":         {func(f *http2.Framer) error { return f.WriteData(1, false, nil) }, 1},
		"padding":            {func(f *http2.Framer) error { return f.WriteDataPadded(1, false, nil, make([]byte, 9)) }, 1},
		"much padded DATA":   {func(f *http2.Framer) error { return f.WriteDataPadded(1, false, make([]byte, 999), nil) }, 0},
		"SETTINGS":           {func(f *http2.Framer) error { return f.WriteSettings(http2.Setting{ID: 4, Val: 9}) }, 1},
		"SETTINGS ACK":       {func(f *http2.Framer) error { return f.WriteSettingsAck() }, 1},
		"PING":               {func(f *http2.Framer) error { return f.WritePing(true, [8]byte{}) }, 1},
		"PRIORITY":           {func(f *http2.Framer) error { return f.WritePriority(1, http2.PriorityParam{}) }, 1},
		"RST_STREAM":         {func(f *http2.Framer) error { return f.WriteRSTStream(1, http2.ErrCodeCancel) }, 1},
		"GOAWAY":             {func(f *http2.Framer) error { return f.WriteGoAway(1, 0, []byte("bye")) }, 1},
		"unknown":            {func(f *http2.Framer) error { return f.WriteRawFrame(77, 0, 0, []byte("abc")) }, 1},
		"small increments": {func(f *http2.Framer) error {
			for _, n := range []uint32{1, smallWindowIncrement - 1, smallWindowIncrement, 1 << 16} {
				if err := f.WriteWindowUpdate(0, n); err != nil {
					return err
				}
			}
			return nil
		}, 2},
	} {
		var sent bytes.Buffer
		f := http2.NewFramer(&sent, nil)
		if err := c.write(f); err != nil {
			t.Fatal(what, err)
		}
		if err := f.WriteRSTStream(1, http2.ErrCodeCancel); err != nil { // which is found only at its boundary
			t.Fatal(err)
		}
		for size := 1; size <= sent.Len(); size++ {
			if n := idleIn(append([]byte(http2.ClientPreface), sent.Bytes()...), size); n != c.idle+1 {
				t.Errorf("%s, read by %d bytes: %d idle frames, want %d", what, size, n-1, c.idle)
			}
		}
	}
}

// idleIn returns the number of idle frames in the bytes of a client, read size bytes at a time.
func idleIn(sent []byte, size int) (idle int) {
	r := frameReader{skip: len(http2.ClientPreface)}
	for len(sent) > 0 {
		n := min(size, len(sent))
		idle += r.idle(sent[:n])
		sent = sent[n:]
	}
	return idle
}

// FuzzFrameReader: the count does not depend on how much is read at a time, and a frame is counted
// once at most.
func FuzzFrameReader(f *testing.F) {
	f.Add([]byte(http2.ClientPreface+"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x01"), 3)
	f.Add([]byte(http2.ClientPreface+
		"\x00\x00\x02\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00"), 1)
	f.Fuzz(func(t *testing.T, sent []byte, size int) {
		if size <= 0 || size > 1<<16 {
			return
		}
		whole := idleIn(sent, len(sent)+1)
		if n := idleIn(sent, size); n != whole {
			t.Errorf("%d idle frames, read by %d bytes %d", whole, size, n)
		}
		if whole > len(sent)/frameHeaderBytes {
			t.Errorf("%d idle frames in %d bytes", whole, len(sent))
		}
	})
}
