// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress says on standard error how far a command is: on a terminal as one line that changes,
// elsewhere nothing. It is safe for concurrent use; the zero value is silent.
type Progress struct {
	screen *Screen

	mu    sync.Mutex
	last  time.Time
	wrote bool
}

// progressEvery keeps a terminal readable.
const progressEvery = 100 * time.Millisecond

// NewProgress returns the progress line on w.
func NewProgress(w io.Writer) *Progress { return &Progress{screen: NewScreen(w)} }

// Say replaces the line.
func (p *Progress) Say(format string, args ...any) {
	if p == nil || p.screen == nil || !p.screen.Terminal {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.last) < progressEvery {
		return
	}
	p.last, p.wrote = time.Now(), true
	text := fmt.Sprintf(format, args...)
	if len(text) >= p.screen.Width {
		text = text[:p.screen.Width-1]
	}
	_, _ = fmt.Fprint(p.screen, "\r\x1b[K"+text)
}

// Done takes the line away.
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
