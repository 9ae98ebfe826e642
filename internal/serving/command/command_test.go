// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// TestLogJSON checks that every line of the log is a JSON object, whatever text the message
// contains, and that -v limits the verbosity.
func TestLogJSON(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	var b bytes.Buffer
	if err := setLog(&b, logJSON, "2"); err != nil {
		t.Fatal(err)
	}
	logger := klog.FromContext(t.Context())
	logger.Info("Serving", "user", "a\nb\x1b[2J")
	logger.V(2).Info("two")
	logger.V(3).Info("three")
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 2 || strings.Contains(b.String(), "three") {
		t.Fatalf("%q", b.String())
	}
	for _, line := range lines {
		said := map[string]any{}
		if err := json.Unmarshal([]byte(line), &said); err != nil || said["msg"] == "" || said["time"] == "" {
			t.Errorf("%v: %s", err, line)
		}
	}
	if err := setLog(&b, "xml", "0"); err == nil {
		t.Error("--log-format xml is accepted")
	}
}
