package webhook_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/kubetenant/kubetenant/authn/webhook"
	"github.com/kubetenant/kubetenant/tenant"
)

const review = `"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview"`

// TestAnswersAreReadInOneWay: what another reader would read otherwise counts for nothing.
func TestAnswersAreReadInOneWay(t *testing.T) {
	const user = `"user":{"username":"alice"}`
	for answer, want := range map[string]error{
		`{` + review + `,"status":{"authenticated":true,` + user + `}}`:                       nil,
		`{` + review + `,"status":{"authenticated":true,` + user + `},"more":{"a":1}}`:        nil,
		"\n{" + review + `,"status":{"authenticated":true,` + user + `}} ` + "\n":             nil,
		`{` + review + `,"status":{"authenticated":false,"Authenticated":true,` + user + `}}`: webhook.ErrNotAuthenticated,
		`{` + review + `,"status":{"Authenticated":true,` + user + `}}`:                       webhook.ErrNotAuthenticated,
		`{` + review + `,"Status":{"authenticated":true,` + user + `}}`:                       webhook.ErrNotAuthenticated,
		`{` + review + `,"status":{"authenticated":false,"authenticated":true,` + user + `}}`: webhook.ErrNotAuthenticated,
		`{` + review + `,"status":{"authenticated":false},"status":{"authenticated":true,` + user +
			`}}`: webhook.ErrNotAuthenticated,
		`{` + review +
			`,"status":{"authenticated":true,"user":{"username":"alice","username":"bob"}}}`: webhook.ErrNotAuthenticated,
		`{` + review +
			`,"status":{"authenticated":true,"user":{"username":"alice","extra":{"k":["a"],` +
			`"k":["b"]}}}}`: webhook.ErrNotAuthenticated,
		`{` + review + `,"status":{"authenticated":true,` + user + `}}{}`:                       webhook.ErrNotAuthenticated,
		`{` + review + `,"status":{"authenticated":true,` + user + `}}` + "\x00":                webhook.ErrNotAuthenticated,
		`{` + review + `,"status":{"authenticated":true,` + user + `}` + `,"status\u0000":{}}}`: webhook.ErrNotAuthenticated,
		`{"apiversion":"authentication.k8s.io/v1","Kind":"TokenReview","status":{"authenticated":true,` + user +
			`}}`: webhook.ErrNotAuthenticated,
		`{` + review + `,"status":{"authenticated":true,"user":{"username":"alice","groups":[` +
			strings.Repeat(`"g",`, 2000) + `"g"]}}}`: tenant.ErrLarge,
	} {
		a := open(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answer)
		})
		if _, ok, err := a.AuthenticateToken(t.Context(), "token"); !errors.Is(err, want) || ok != (want == nil) {
			t.Errorf("%.140s: %t, %v; want %v", answer, ok, err, want)
		}
	}
}

// TestLargeAnswersTakeNoMemory: of many answers of the largest size at once few are read at
// a time, and none is kept.
func TestLargeAnswersTakeNoMemory(t *testing.T) {
	answer := `{` + review + `,"status":{"authenticated":true,"user":{"username":"alice","groups":[` +
		strings.Repeat(`"g0000",`, 120_000) + `"g"]}}}`
	a := open(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all errgroup.Group
	all.SetLimit(24) // three times as many as are read at a time
	for i := range 48 {
		all.Go(func() error {
			if _, ok, err := a.AuthenticateToken(t.Context(), fmt.Sprint("token", i)); ok || err == nil {
				return errors.New("accepted")
			}
			return nil // too large, or too late
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.Sys) - int64(before.Sys); grown > 100<<20 {
		t.Errorf("the process took %d MiB from the machine", grown>>20)
	}
}
