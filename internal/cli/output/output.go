// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package output prints the results of commands, as kubectl's tables for people and in kubectl's
// formats for programs.
package output

import (
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// plainWidth is the width of an output that is not a terminal. It is so large that lines are not
// wrapped, so that grep finds whole lines.
const plainWidth = math.MaxInt32

// minWidth is the minimum width of the layout in columns. A terminal with fewer columns wraps the
// lines itself.
const minWidth = 20

// Screen is the destination of text output.
type Screen struct {
	io.Writer
	// Terminal reports whether the destination is a terminal. Color reports whether the terminal
	// shows colors.
	Terminal, Color bool
	// Width is the width of the destination in columns.
	Width int
}

// NewScreen returns the screen for w. It detects a terminal and honors NO_COLOR and TERM=dumb.
func NewScreen(w io.Writer) *Screen {
	s := &Screen{Writer: w, Width: plainWidth}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return s
	}
	s.Terminal = true
	_, none := os.LookupEnv("NO_COLOR")
	s.Color = !none && os.Getenv("TERM") != "dumb"
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		s.Width = max(width, minWidth)
	}
	return s
}

// Colors and text styles.
const (
	Bold  = "1"
	Red   = "31"
	Green = "32"
	Faint = "2"
)

// Paint returns text in a color or style, or unchanged if the screen shows no colors.
func (s *Screen) Paint(colour, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// Safe returns text with its control characters escaped. Users choose the names of their objects,
// so a name must neither control the terminal of another user nor imitate another line or cell.
//
// Invalid UTF-8 is replaced, because some terminals interpret individual bytes as control
// characters.
func Safe(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if !strings.ContainsFunc(text, unsafe) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unsafe(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// unsafe reports whether r is a control or format character, or a line or paragraph separator.
// Format characters include those that change the direction of text.
func unsafe(r rune) bool {
	if ' ' <= r && r <= '~' { // the most frequent case
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}
