// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package stack_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/tenant"
)

var (
	historyCount = flag.Int("histories", 400, "number of histories of 50 steps that TestHistories replays")
	historySeed  = flag.Uint64("histories.seed", 0, "seed of the first history")
)

// historyStep is a request to the server, or an event in the server.
type historyStep struct {
	Caller string `json:"caller,omitempty"` // tenant/user; empty for an event in the server
	As     string `json:"as,omitempty"`
	Verb   string `json:"verb"`
	Target string `json:"target"`
	Name   string `json:"name,omitempty"`
	Label  string `json:"label,omitempty"` // the tenant label; "-" for none
}

// The names of the two tenants. A test removes the steps of the tenant other from a history. The
// responses and watches of the tenant observed must not change.
const (
	observed = "a"
	other    = "b"
)

func (s *historyStep) isBy(id string) bool { return strings.HasPrefix(s.Caller, id+"/") }

func makeStep(r *rand.Rand) historyStep {
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	if r.IntN(4) == 0 { // a step of a system caller or an event of the server
		name := pick("web", "shop", "a--one", "b--one")
		switch r.IntN(8) {
		case 0:
			return historyStep{Verb: "sync"}
		case 1:
			return historyStep{Verb: "finish"}
		case 2:
			return historyStep{Verb: "restart"}
		case 3:
			return historyStep{Verb: "later"}
		case 4:
			return historyStep{Caller: "system/root", Verb: "delete", Target: "/api/v1/namespaces/" + name}
		}
		return historyStep{
			Caller: "system/root",
			Verb:   "create",
			Target: "/api/v1/namespaces",
			Name:   name,
			Label:  pick("a", "a", "b", "b", "c", "-"),
		}
	}
	caller := pick(observed, observed, observed, other, other, other, "c")
	namespace := caller + "--one"
	if r.IntN(2) == 0 {
		namespace = pick(caller+"--two", "web", "web", "shop", "a--one", "b--one", "a--two", "default", "none")
	}
	s := historyStep{
		Caller: caller + "/" + pick("alice", "alice", "bob", "system:serviceaccount:"+caller+"--one:robot"),
		Name:   pick("x", "y"),
		Label:  "-",
	}
	if r.IntN(8) == 0 {
		s.Label = pick("a", "b", "c", "")
	}
	if r.IntN(8) == 0 {
		s.As = pick("alice", "bob", "system:serviceaccount:"+namespace+":robot",
			"system:serviceaccount:a--one:robot", "system:masters")
	}
	prefix := ""
	if r.IntN(10) == 0 {
		prefix = "/tenants/" + pick("a", "b", "all", caller)
	}
	selector := ""
	if r.IntN(4) == 0 {
		selector = "labelSelector=" + pick("kubetenant.dev/tenant=a", "kubetenant.dev/tenant=b", "kubetenant.dev/tenant",
			"kubetenant.dev/tenant+in+(a,b)", "x=y", "kubetenant.dev/tenant!=a", "kubetenant.dev/tenant=b&labelSelector=x")
	}
	s.Verb = pick("get", "list", "list", "list", "watch", "watch", "create", "create", "create", "update", "patch",
		"delete", "deletecollection", "grant", "revoke")
	switch r.IntN(5) {
	case 0: // the namespace itself
		s.Name = namespace
		s.Target = "/api/v1/namespaces"
		if s.Verb == "delete" && r.IntN(2) == 0 {
			s.Verb = "list"
		}
		if s.Verb != "list" && s.Verb != "watch" && s.Verb != "create" {
			s.Target += "/" + namespace
		}
		if s.Verb == "deletecollection" {
			s.Verb = "delete"
		}
		if s.Verb == "delete" && caller == other && !strings.HasPrefix(namespace, other) {
			s.Verb = "get" // observed could notice that the name is free
		}
	case 1: // all namespaces
		s.Target = "/api/v1/configmaps"
		if s.Verb != "watch" && s.Verb != "deletecollection" {
			s.Verb = "list"
		}
	default:
		s.Target = "/api/v1/namespaces/" + namespace + "/configmaps"
		if slices.Contains([]string{"get", "update", "patch", "delete"}, s.Verb) {
			s.Target += "/" + s.Name
		}
	}
	if s.Verb == "grant" || s.Verb == "revoke" {
		// The caller may grant access only to its own namespaces. A grant of other to observed
		// would be a legitimate difference.
		s.Target, s.Label = pick(caller+"--one", caller+"--two"), pick("a", "b", "c")
		if caller == other && s.Label == observed {
			s.Label = "c"
		}
		return s
	}
	s.Target = prefix + s.Target
	if selector != "" {
		s.Target += "?" + selector
	}
	return s
}

var methods = map[string]string{
	"get":              "GET",
	"list":             "GET",
	"watch":            "GET",
	"create":           "POST",
	"update":           "PUT",
	"patch":            "PATCH",
	"delete":           "DELETE",
	"deletecollection": "DELETE",
}

// replay replays a history and returns everything that the tenant observed saw. This includes the
// responses to its own requests, and the events and ends of its watches. The result contains no
// entries for the steps of other.
func replay(t testing.TB, settings *configv1alpha1.Settings, history []historyStep) []string {
	t.Helper()
	m := newMemoryServer(t, settings)
	defer m.close()
	var saw []string
	var open []*memoryWatch
	shown := map[*memoryWatch]int{}
	ended := map[*memoryWatch]bool{}
	for i := range history {
		s := &history[i]
		if answer, watch := m.step(s); s.isBy(observed) {
			saw = append(saw, fmt.Sprintf("%s: %s", s, answer))
			if watch != nil {
				open = append(open, watch)
			}
		}
		if s.isBy(other) {
			continue
		}
		for n, w := range open {
			for _, event := range w.events[shown[w]:] {
				saw = append(saw, fmt.Sprintf("%s: watch %d: %s", s, n, event))
			}
			shown[w] = len(w.events)
			if w.ctx.Err() != nil && !ended[w] {
				ended[w] = true
				saw = append(saw, fmt.Sprintf("%s: watch %d has ended", s, n))
			}
		}
	}
	return saw
}

func (s *historyStep) String() string {
	text, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// step makes one step and returns its response.
func (m *memoryServer) step(s *historyStep) (string, *memoryWatch) {
	switch s.Verb {
	case "sync":
		m.sync()
	case "finish":
		m.finishDeletions()
	case "restart":
		m.restart()
	case "later":
		m.now = m.now.Add(40 * time.Minute)
		for _, key := range []string{"a--one", "a--two", "b--one", "b--two", "c--one", "c--two"} {
			m.stack.GrantChanged(key) // ends sessions of expired grants, whose timers use the real clock
		}
	case "grant", "revoke":
		if owner, err := m.stack.NamespaceOwner(m.t.Context(), s.Target); err != nil || !s.isBy(owner.String()) {
			return "no", nil
		}
		if s.Verb == "revoke" {
			m.grant(s.Target, "")
		} else {
			m.grant(s.Target, s.Label)
		}
	default:
		target := s.Target
		if s.Verb == "watch" {
			separator := "?"
			if strings.Contains(target, "?") {
				separator = "&"
			}
			target += separator + "watch=1"
		}
		o := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: map[string]string{}},
			Data:       map[string]string{"by": s.Caller},
		}
		if s.Label != "-" {
			o.Labels[tenant.Label] = s.Label
		}
		if methods[s.Verb] == "GET" || methods[s.Verb] == "DELETE" {
			o = nil
		}
		return m.send(s.Caller, s.As, methods[s.Verb], target, o)
	}
	return "done", nil
}

// viewDifference returns how the steps of other change the responses and watches of observed, or
// "" if they change nothing.
func viewDifference(t testing.TB, settings *configv1alpha1.Settings, history []historyStep) string {
	t.Helper()
	without := slices.DeleteFunc(slices.Clone(history), func(s historyStep) bool { return s.isBy(other) })
	return cmp.Diff(replay(t, settings, without), replay(t, settings, history))
}

// minimize removes the steps of a history that viewDifference does not need to find a difference.
func minimize(t testing.TB, settings *configv1alpha1.Settings, history []historyStep) []historyStep {
	t.Helper()
	for i := 0; i < len(history); {
		shorter := slices.Delete(slices.Clone(history), i, i+1)
		if viewDifference(t, settings, shorter) != "" {
			history, i = shorter, 0
			continue
		}
		i++
	}
	return history
}

func historySettings(t testing.TB, mode configv1alpha1.Mode) *configv1alpha1.Settings {
	t.Helper()
	settings, err := (&configv1alpha1.Settings{}).Complete()
	if err != nil {
		t.Fatal(err)
	}
	settings.Authorization.Mode = mode
	return settings
}

func makeHistory(seed uint64) []historyStep {
	r := rand.New(rand.NewPCG(seed, 0))
	var history []historyStep
	for _, id := range []string{observed, other} {
		history = append(history, historyStep{
			Caller: "system/root",
			Verb:   "create",
			Target: "/api/v1/namespaces",
			Name:   id + "--one",
			Label:  id,
		})
	}
	for len(history) < 50 {
		history = append(history, makeStep(r))
	}
	return history
}

// TestHistories checks random histories of steps by three tenants and the system tenant. The
// responses and watches of observed must not depend on the steps of other, except for grants. The
// test prints a shortened copy of a failing history. Add the copy to
// internal/stack/testdata/histories.
func TestHistories(t *testing.T) {
	t.Parallel()
	settings := historySettings(t, configv1alpha1.ModeEnforce)
	var next atomic.Int64
	var failed atomic.Bool
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for n := next.Add(1) - 1; n < int64(*historyCount) && !failed.Load(); n = next.Add(1) - 1 {
				history := makeHistory(*historySeed + uint64(n))
				if viewDifference(t, settings, history) == "" {
					continue
				}
				failed.Store(true)
				history = minimize(t, settings, history)
				text, err := json.MarshalIndent(history, "", "  ")
				t.Errorf("history %d: %s\n%s %v", n, viewDifference(t, settings, history), text, err)
			}
		})
	}
	workers.Wait()
}

// TestRegressionHistories checks histories that failed in the past. Each must also fail without
// the boundary.
func TestRegressionHistories(t *testing.T) {
	files, err := filepath.Glob("testdata/histories/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".json"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			var history []historyStep
			if err == nil {
				err = json.Unmarshal(data, &history)
			}
			if err != nil {
				t.Fatal(err)
			}
			if difference := viewDifference(t, historySettings(t, configv1alpha1.ModeEnforce), history); difference != "" {
				t.Error(difference)
			}
			if viewDifference(t, historySettings(t, configv1alpha1.ModeShadow), history) == "" {
				t.Error("the history does not fail without the boundary")
			}
		})
	}
}

// TestHistoriesDetectMissingBoundary checks that most histories fail without the boundary.
func TestHistoriesDetectMissingBoundary(t *testing.T) {
	t.Parallel()
	settings, found := historySettings(t, configv1alpha1.ModeShadow), 0
	for seed := range uint64(40) {
		if viewDifference(t, settings, makeHistory(seed)) != "" {
			found++
		}
	}
	if found < 20 {
		t.Errorf("only %d of 40 histories fail without the boundary", found)
	}
}
