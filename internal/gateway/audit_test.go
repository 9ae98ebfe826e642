package gateway_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// TestAuditNamesTheCluster: each event says which cluster a request was for, those that are
// refused too, and none by a name that a caller made up. What a gateway before left in the log
// of a line is none of them.
func TestAuditNamesTheCluster(t *testing.T) {
	t.Parallel()
	c := newStandIn(t, spaces())
	w := newWorld(t, entry("eu1", ""), map[string]*standIn{"eu1": c})
	w.write("audit.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [ { level: Metadata } ]\n")
	const torn = `{"kind":"Ev`
	w.write("audit.log", torn)
	w.write("tenancy.yaml", strings.Replace(header, "gateway:\n",
		"gateway:\n  audit: { policyFile: audit.yaml, logPath: audit.log }\n", 1)+entry("eu1", ""))
	waittest.Until(t, func() error {
		w.get("alice-token", "/clusters/eu1"+podsPath, "X-Forwarded-For", "203.0.113.66", "X-Real-Ip", "203.0.113.67")
		w.get("alice-token", "/clusters/eu1/api/v1/namespaces/globex--shop/secrets")
		w.get("nobody", "/clusters/eu1"+podsPath)
		w.get("alice-token", "/clusters/made-up"+podsPath)
		text, err := os.ReadFile(filepath.Join(w.dir, "audit.log"))
		if err != nil {
			return err
		}
		for _, want := range []string{`"code":200`, `"code":403`, `"code":401`} {
			if !strings.Contains(string(text), want) {
				return errors.New(string(text))
			}
		}
		return nil
	})
	text, err := os.ReadFile(filepath.Join(w.dir, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "203.0.113.") || !strings.Contains(string(text), `"sourceIPs":["127.0.0.1"]`) {
		t.Errorf("a caller says where it is: %s", text)
	}
	of := map[string]int{}
	events, kept := strings.CutPrefix(string(text), torn+"\n")
	if !kept {
		t.Errorf("the line that was torn: %s", text)
	}
	for line := range strings.Lines(events) {
		switch {
		case strings.Contains(line, `"gateway.kubetenant.dev/cluster":"eu1"`):
			of["eu1"]++
		case strings.Contains(line, `"gateway.kubetenant.dev/cluster":"(none)"`):
			of["none"]++
		default:
			t.Errorf("it says of no cluster: %s", line)
		}
	}
	if of["eu1"] < 3 || of["none"] < 1 || strings.Contains(string(text), "made-up") {
		t.Errorf("%v in %s", of, text)
	}
}

// TestAuditPolicyIsFollowed: another policy counts, though nothing else changes.
func TestAuditPolicyIsFollowed(t *testing.T) {
	t.Parallel()
	c := newStandIn(t, spaces())
	w := newWorld(t, entry("eu1", ""), map[string]*standIn{"eu1": c})
	policy := func(level string) {
		w.write("audit.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [ { level: "+level+" } ]\n")
	}
	policy("None")
	w.write("tenancy.yaml", strings.Replace(header, "gateway:\n",
		"gateway:\n  audit: { policyFile: audit.yaml, logPath: audit.log }\n", 1)+entry("eu1", ""))
	recorded := func() bool {
		w.get("alice-token", "/clusters/eu1"+podsPath)
		text, err := os.ReadFile(filepath.Join(w.dir, "audit.log"))
		return err == nil && len(text) > 0
	}
	waittest.Until(t, func() error {
		if _, err := os.Stat(filepath.Join(w.dir, "audit.log")); err != nil {
			return err
		}
		return nil
	})
	if recorded() {
		t.Fatal("something is recorded that is not to be")
	}
	policy("Metadata")
	waittest.Until(t, func() error {
		if !recorded() {
			return errors.New("nothing is recorded")
		}
		return nil
	})
}
