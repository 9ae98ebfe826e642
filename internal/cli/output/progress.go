// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress shows the progress of a command. On a terminal, it rewrites one line. Otherwise, it
// prints nothing. It is safe for concurrent use. A nil Progress and the zero value print nothing.
type Progress struct {
	screen *Screen

	mu    sync.Mutex
	last  time.Time
	wrote bool
}

// progressInterval is the minimum time between two updates, so that the line remains readable.
const progressInterval = 100 * time.Millisecond

// NewProgress returns a Progress that writes to w.
func NewProgress(w io.Writer) *Progress { return &Progress{screen: NewScreen(w)} }

// Update replaces the progress line. It ignores an update within [progressInterval] of the last
// one.
func (p *Progress) Update(format string, args ...any) {
	if p == nil || p.screen == nil || !p.screen.Terminal {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.last) < progressInterval {
		return
	}
	p.last = time.Now()
	p.wrote = true
	text := fmt.Sprintf(format, args...)
	if len(text) >= p.screen.Width {
		text = text[:p.screen.Width-1]
	}
	_, _ = fmt.Fprint(p.screen, "\r\x1b[K"+text)
}

// Done removes the progress line.
func (p *Progress) Done() {
	if p == nil || p.screen == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wrote {
		_, _ = fmt.Fprint(p.screen, "\r\x1b[K")
		p.wrote = false
	}
}
