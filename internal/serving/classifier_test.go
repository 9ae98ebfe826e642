// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// TestIdleFrames checks which types of frames are idle. A small frame is idle unless a request or a
// response has earned credits for it.
func TestIdleFrames(t *testing.T) {
	headers := func(stream uint32) func(f *http2.Framer) error {
		return func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte("abc")})
		}
	}
	raw := func(kind http2.FrameType, stream uint32, payload string) func(f *http2.Framer) error {
		return func(f *http2.Framer) error { return f.WriteRawFrame(kind, 0, stream, []byte(payload)) }
	}
	data := func(end bool, size int) func(f *http2.Framer) error {
		return func(f *http2.Framer) error { return f.WriteData(1, end, make([]byte, size)) }
	}
	padded := func(size, padding int) func(f *http2.Framer) error {
		return func(f *http2.Framer) error {
			return f.WriteDataPadded(1, false, make([]byte, size), make([]byte, padding))
		}
	}
	continuation := func(size int) func(f *http2.Framer) error {
		return func(f *http2.Framer) error { return f.WriteContinuation(1, true, make([]byte, size)) }
	}
	const works, small, idle = "works", "small", "idle"
	cases := map[string]struct {
		write func(f *http2.Framer) error
		is    string
	}{
		"HEADERS":              {headers(3), works},
		"HEADERS HEADERS":      {func(f *http2.Framer) error { return errors.Join(headers(3)(f), headers(5)(f)) }, works},
		"HEADERS again":        {headers(1), idle},
		"DATA":                 {data(false, smallData), works},
		"DATA, the last":       {data(true, 16384), works},
		"DATA, of a byte":      {data(false, 1), small},
		"DATA, just small":     {data(false, smallData-1), small},
		"DATA, small, last":    {data(true, 1), small},
		"DATA, empty":          {data(false, 0), small},
		"DATA, empty, last":    {data(true, 0), small},
		"DATA, padding":        {padded(0, 255), small},
		"DATA, byte, padding":  {padded(1, 255), small},
		"DATA, padded":         {padded(999, 0), works},
		"CONTINUATION":         {continuation(9999), small},
		"CONTINUATION, empty":  {continuation(0), small},
		"WINDOW_UPDATE":        {func(f *http2.Framer) error { return f.WriteWindowUpdate(1, 1<<31-1) }, small},
		"WINDOW_UPDATE, all":   {func(f *http2.Framer) error { return f.WriteWindowUpdate(0, 1) }, small},
		"SETTINGS":             {func(f *http2.Framer) error { return f.WriteSettings(http2.Setting{ID: 4, Val: 9}) }, idle},
		"SETTINGS, ACK":        {func(f *http2.Framer) error { return f.WriteSettingsAck() }, idle},
		"PING":                 {func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) }, idle},
		"PING, ACK":            {func(f *http2.Framer) error { return f.WritePing(true, [8]byte{}) }, idle},
		"PRIORITY":             {func(f *http2.Framer) error { return f.WritePriority(1, http2.PriorityParam{}) }, idle},
		"PRIORITY, self":       {raw(http2.FramePriority, 1, "\x00\x00\x00\x01\x09"), idle},
		"RST_STREAM":           {func(f *http2.Framer) error { return f.WriteRSTStream(1, http2.ErrCodeCancel) }, idle},
		"PUSH_PROMISE":         {raw(http2.FramePushPromise, 1, "abcd"), idle},
		"GOAWAY":               {func(f *http2.Framer) error { return f.WriteGoAway(1, 0, []byte("bye")) }, idle},
		"PRIORITY_UPDATE":      {raw(16, 0, "abcd"), idle},
		"UNKNOWN, with a size": {raw(77, 0, strings.Repeat("x", 999)), idle},
	}
	for kind := range http2.FrameType(255) {
		name := kind.String()
		if name == "" || strings.HasPrefix(name, "UNKNOWN") {
			cases[fmt.Sprint("UNKNOWN ", kind)] = struct {
				write func(f *http2.Framer) error
				is    string
			}{func(f *http2.Framer) error { return f.WriteRawFrame(kind, 0xff, 1, []byte("abc")) }, idle}
		} else if _, walked := cases[name]; !walked {
			t.Errorf("no case for %s", name)
		}
	}
	for what, c := range cases {
		t.Run(what, func(t *testing.T) {
			var sent bytes.Buffer
			f := http2.NewFramer(&sent, nil)
			f.AllowIllegalWrites = true
			if err := c.write(f); err != nil {
				t.Fatal(what, err)
			}
			if err := f.WriteRSTStream(1, http2.ErrCodeCancel); err != nil { // classified only if the boundary is found
				t.Fatal(err)
			}
			for size := 1; size <= sent.Len(); size += 1 + size/8 {
				all := append([]byte(http2.ClientPreface), sent.Bytes()...)
				without, with := countIdle(all, size, 0)-1, countIdle(all, size, 1)-1
				is := map[[2]int]string{{0, 0}: works, {1, 0}: small, {1, 1}: idle}[[2]int{without, with}]
				if is != c.is {
					t.Errorf("%s, read by %d bytes: %d idle frames, %d with a credit: want it %s", what, size, without, with, c.is)
				}
			}
		})
	}
}

// countIdle returns the number of idle frames in the bytes that a client sent. It reads size
// bytes at a time. The connection has a stream with the ID 1.
func countIdle(sent []byte, size int, credits int64) (idle int) {
	r := frameReader{skip: len(http2.ClientPreface)}
	w := &frameClassifier{newestStream: 1}
	w.credits.Store(credits)
	for len(sent) > 0 {
		n := min(size, len(sent))
		r.read(sent[:n], func(f frameHeader) {
			if w.receive(f) {
				idle++
			}
		})
		sent = sent[n:]
	}
	return idle
}

// TestCredits checks the effect of the frames that the server sends. A response earns credits up
// to a limit, and a reset is counted as an idle frame.
func TestCredits(t *testing.T) {
	for what, c := range map[string]struct {
		sent    []frameHeader
		credits int64
		resets  int64
	}{
		"headers":    {[]frameHeader{{kind: http2.FrameHeaders, length: 99}}, 0, 0},
		"ping":       {[]frameHeader{{kind: http2.FramePing}, {kind: http2.FrameSettings}}, 0, 0},
		"empty data": {[]frameHeader{{kind: http2.FrameData}}, 0, 0},
		"an event":   {[]frameHeader{{kind: http2.FrameData, length: 99}}, dataCredits, 0},
		"16 KiB":     {[]frameHeader{{kind: http2.FrameData, length: 16 << 10}}, dataCredits + 16, 0},
		"resets":     {[]frameHeader{{kind: http2.FrameRSTStream}, {kind: http2.FrameRSTStream}}, 0, 2},
	} {
		t.Run(what, func(t *testing.T) {
			w := &frameClassifier{}
			for _, f := range c.sent {
				w.send(f)
			}
			if w.credits.Load() != c.credits || w.resets.Load() != c.resets {
				t.Errorf("%d credits, %d resets", w.credits.Load(), w.resets.Load())
			}
		})
	}
	w := &frameClassifier{}
	for range 100_000 {
		w.send(frameHeader{kind: http2.FrameData, length: 16 << 10})
	}
	if most := w.credits.Load(); most > 2*maxCredits {
		t.Errorf("%d credits after a long response", most)
	}
}

// FuzzFrameReader checks that the number of idle frames does not depend on the size of each read,
// and that each frame is counted at most once.
func FuzzFrameReader(f *testing.F) {
	f.Add([]byte(http2.ClientPreface+"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x01"), 3)
	f.Add([]byte(http2.ClientPreface+
		"\x00\x00\x02\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00"), 1)
	f.Fuzz(func(t *testing.T, sent []byte, size int) {
		if size <= 0 || size > 1<<16 {
			return
		}
		whole := countIdle(sent, len(sent)+1, 0)
		if n := countIdle(sent, size, 0); n != whole {
			t.Errorf("%d idle frames; with reads of %d bytes: %d", whole, size, n)
		}
		if whole > len(sent)/frameHeaderBytes {
			t.Errorf("%d idle frames in %d bytes", whole, len(sent))
		}
	})
}
