// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A finding is a violation of a rule.
type finding struct {
	line, column int
	isError      bool
	rule, text   string
}

// alert is a finding in Vale's output. Line and Span start at 1. Span is in characters.
type alert struct {
	Check, Message, Severity string
	Line                     int
	Span                     [2]int
}

// vale runs Vale once for all texts and sets the findings of the sources.
func vale(ctx context.Context, binary, config string, sources []*source) error {
	dir, err := os.MkdirTemp("", "prose-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for i, s := range sources {
		var b bytes.Buffer
		for _, t := range s.texts {
			b.Write(t.b)
			if last := t.b[len(t.b)-1]; last != '.' && last != '!' && last != '?' {
				b.WriteByte('.') // otherwise, Vale adds the next paragraph to the sentence
			}
			b.WriteString("\n\n")
		}
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)+".txt"), b.Bytes(), 0o600); err != nil {
			return err
		}
	}
	//nolint:gosec // the binary and the configuration of this repository
	cmd := exec.CommandContext(ctx, binary, "--config", config, "--no-global", "--output", "JSON", dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 { // Vale found errors
		err = nil
	}
	if err != nil {
		return fmt.Errorf("vale: %w: %s%s", err, stderr.Bytes(), out)
	}
	var alerts map[string][]alert
	if err := json.Unmarshal(out, &alerts); err != nil {
		return fmt.Errorf("vale: read its report: %w", err)
	}
	for name, found := range alerts {
		i, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(name), ".txt"))
		if err != nil || i < 0 || i >= len(sources) {
			return fmt.Errorf("vale: report about %q", name)
		}
		sources[i].set(found)
	}
	return nil
}

// set converts alerts to findings with positions in the source file.
func (s *source) set(alerts []alert) {
	for _, a := range alerts {
		f := finding{isError: a.Severity == "error", rule: strings.TrimPrefix(a.Check, "Kubetenant."), text: a.Message}
		if i := (a.Line - 1) / 2; i >= 0 && i < len(s.texts) {
			t := s.texts[i]
			f.line, f.column = position(s.content, t.at[byteOffset(t.b, a.Span[0]-1)])
		}
		s.findings = append(s.findings, f)
	}
	slices.SortFunc(s.findings, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column), cmp.Compare(a.rule, b.rule))
	})
}

// byteOffset returns the offset in bytes of the character with index n.
func byteOffset(b []byte, n int) int {
	at := 0
	for ; n > 0 && at < len(b); n-- {
		_, size := utf8.DecodeRune(b[at:])
		at += size
	}
	return min(at, len(b)-1)
}
