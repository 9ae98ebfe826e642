package explain_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/cmd/internal/simulate/explain"
	"github.com/kubetenant/kubetenant/cmd/internal/simulate/scenario"
	"github.com/kubetenant/kubetenant/cmd/internal/simulate/simulator"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// TestScenarios: an explanation ends as every case of the corpus does, and what it proposes is tried.
func TestScenarios(t *testing.T) {
	klog.SetLogger(logr.Discard())
	ctx := klog.NewContext(t.Context(), logr.Discard())
	files, err := scenario.Files([]string{filepath.Join("..", "..", "..", "..", "testdata", "scenarios")})
	if err != nil {
		t.Fatal(err)
	}
	cases, remedies := 0, map[string]int{}
	for _, file := range files {
		all, err := v1alpha1.LoadScenarios(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if s.Invalid != "" {
				continue
			}
			w, err := scenario.NewWorld(s, nil)
			if err != nil {
				t.Fatal(err)
			}
			session, err := scenario.Library{}.Open(ctx, w)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			config, err := v1alpha1.Load(w.ConfigFile)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			for i := range s.Cases {
				c := &s.Cases[i]
				if c.Request == nil || c.Credential.Impersonate != nil { // --as of the command is no impersonation
					continue
				}
				identity, err := session.Authenticate(ctx, &c.Credential)
				if err != nil || identity.User == nil {
					continue
				}
				q := &explain.Question{Config: &config.Settings, Request: scenario.Attributes(nil, c.Request), Said: "a test",
					User: &user.DefaultInfo{Name: identity.User.Name, UID: identity.User.UID, Groups: identity.User.Groups, Extra: identity.User.Extra}}
				if q.Snapshot, q.Delegate, err = scenario.Snapshot(s); err != nil {
					t.Fatal(err)
				}
				e, err := explain.Explain(ctx, q)
				if err != nil {
					t.Errorf("%s: %s: %v", file, c.Name, err)
					continue
				}
				cases++
				// A list over all namespaces is limited on its way, which a SubjectAccessReview does not see.
				truth, err := session.Authorize(simulator.Asked(ctx), &c.Credential, c.Request)
				if want := truth.Decision == "allow"; err != nil || e.Allowed() != want {
					t.Errorf("%s: %s: explained as %s (%s), it is %s, %v", file, c.Name, e.Decision, e.Reason, truth.Decision, err)
				}
				if e.Remedy != nil {
					kind, _, _ := strings.Cut(e.Remedy.Text, ",")
					remedies[kind]++
				}
			}
			session.Close()
			w.Close()
		}
	}
	if cases < 500 {
		t.Errorf("%d cases were explained", cases)
	}
	t.Logf("%d cases, %v", cases, remedies)
}
