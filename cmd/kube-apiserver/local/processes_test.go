// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestFailedControllerIsRestarted checks that a failed controller is restarted at most maxRestarts
// times, and that a controller that ends without an error is not restarted.
func TestFailedControllerIsRestarted(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(filepath.Dir(self), webhookBinary)
	defer func() { _ = os.Remove(binary) }()
	for name, c := range map[string]struct {
		code, fails, want int
		runs              bool // after the last restart
	}{
		"fails twice": {
			code:  1,
			fails: 2,
			want:  3,
			runs:  true,
		},
		"always fails":          {code: 1, fails: 100, want: 1 + maxRestarts},
		"ends without an error": {code: 0, fails: 100, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &webhookDeployment{cluster: &cluster{dir: t.TempDir()}, o: &Options{}, exits: make(chan exit, 9)}
			starts := filepath.Join(s.dir, "starts")
			script := fmt.Sprintf("#!/bin/sh\necho >> %[1]s\n[ $(wc -l < %[1]s) -gt %[2]d ] && exec sleep 600\nexit %[3]d\n",
				starts, c.fails, c.code)
			if err := os.WriteFile(binary, []byte(script), 0o700); err != nil { // #nosec G306 -- to be run
				t.Fatal(err)
			}
			if err := s.startController(); err != nil {
				t.Fatal(err)
			}
			started := func() int {
				said, _ := os.ReadFile(starts) // the file does not exist before the first start
				return bytes.Count(said, []byte("\n"))
			}
			err := s.await(t.Context(), name, func(context.Context) error {
				if n := started(); n <= c.fails {
					return fmt.Errorf("the controller was started %d times", n)
				}
				return nil
			})
			if n := started(); n != c.want || c.runs != (err == nil) {
				t.Errorf("%d starts, want %d: %v", n, c.want, err)
			}
			_ = s.stop(0)
		})
	}
}
