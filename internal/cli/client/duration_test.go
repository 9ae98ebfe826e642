// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"math"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/internal/cli/client"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"8h":                    8 * time.Hour,
		"1h30m":                 90 * time.Minute,
		"30d":                   720 * time.Hour,
		"3d12h":                 84 * time.Hour,
		"0d":                    0,
		"1d1s":                  24*time.Hour + time.Second,
		"-1h":                   -time.Hour,
		"106751d":               106751 * 24 * time.Hour,
		"":                      math.MinInt64, // this entry and all that follow are invalid
		"d":                     math.MinInt64,
		"1":                     math.MinInt64,
		"-1d":                   math.MinInt64,
		"+1d":                   math.MinInt64,
		"1.5d":                  math.MinInt64,
		"1d-1h":                 math.MinInt64,
		"1d+1h":                 math.MinInt64,
		"1dd":                   math.MinInt64,
		"1h1d":                  math.MinInt64,
		"1d1":                   math.MinInt64,
		"106752d":               math.MinInt64,
		"106751d24h":            math.MinInt64,
		"99999999999999999999d": math.MinInt64,
	} {
		t.Run(text, func(t *testing.T) {
			got, err := client.ParseDuration(text)
			if isValid := want != math.MinInt64; isValid != (err == nil) || isValid && got != want {
				t.Errorf("ParseDuration(%q) = %v, %v; want %v", text, got, err, want)
			}
		})
	}
}

// FuzzParseDuration checks that each duration that time.ParseDuration accepts has the same
// value, and that no result overflows.
func FuzzParseDuration(f *testing.F) {
	for _, text := range []string{"8h", "3d12h", "1d-1h", "99999d", "d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := client.ParseDuration(text)
		if plain, plainErr := time.ParseDuration(text); plainErr == nil && (err != nil || got != plain) {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", text, got, err, plain)
		}
		if err == nil && got < 0 && text[0] != '-' {
			t.Errorf("ParseDuration(%q) = %v", text, got)
		}
	})
}
