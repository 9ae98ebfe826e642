package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/internal/waittest"
)

// goesOn returns whether a stream does, so far.
func goesOn(ended <-chan time.Time) bool {
	select {
	case <-ended:
		return false
	case <-time.After(100 * time.Millisecond):
		return true
	}
}

// read reads a stream, and says when it ended.
func read(resp *http.Response) <-chan time.Time {
	ended := make(chan time.Time, 1)
	go func() { _, _ = io.Copy(io.Discard, resp.Body); ended <- time.Now() }()
	return ended
}

const accountsToo = ", root: true, serviceAccounts: { tokens: Pass, issuers: [\"https://kubernetes.default.svc\"] }"

// TestEndWithCredential: a stream ends when its credential does, if it is to, and what names no end goes on.
func TestEndWithCredential(t *testing.T) {
	for more, ending := range map[string]bool{"": false, "  sessions: { endWithCredential: true }\n": true} {
		t.Run(fmt.Sprint(ending), func(t *testing.T) {
			t.Parallel()
			c := newStandIn(t, spaces())
			w := newWorld(t, entry("eu1", accountsToo)+more, map[string]*standIn{"eu1": c})
			end := time.Now().Add(3 * time.Second).Truncate(time.Second)
			account := w.open(t.Context(), c.tokenUntil(t, "system:serviceaccount:acme--web:builder", end), http.MethodGet, podsPath+"?watch=1", "")
			defer func() { _ = account.Body.Close() }()
			alices := w.open(t.Context(), "alice-token", http.MethodGet, podsPath+"?watch=1", "")
			defer func() { _ = alices.Body.Close() }()
			if account.StatusCode != http.StatusOK || alices.StatusCode != http.StatusOK {
				t.Fatalf("%s, %s", account.Status, alices.Status)
			}
			ended := read(account)
			if ending {
				select {
				case at := <-ended:
					if at.Before(end) {
						t.Errorf("it ended %v before its credential", end.Sub(at))
					}
				case <-time.After(soon):
					t.Error("it goes on")
				}
			} else if time.Sleep(time.Until(end)); !goesOn(ended) {
				t.Error("it ended")
			}
			if !goesOn(read(alices)) {
				t.Error("what names no end ended")
			}
		})
	}
}

// TestSessionsBecomeOthers: what was open when sessions got an end has none, and ends.
func TestSessionsBecomeOthers(t *testing.T) {
	t.Parallel()
	w, _ := rooted(t)
	resp := w.open(t.Context(), "alice-token", http.MethodGet, podsPath+"?watch=1", "")
	defer func() { _ = resp.Body.Close() }()
	w.write("tenancy.yaml", header+entry("eu1", accountsToo)+"  sessions: { endWithCredential: true }\n")
	if err := ends(resp); err != nil {
		t.Error(err)
	}
}

// TestConnectionsAreLeft: now and then a caller is sent to another connection, if it is to be, and what is open stays so.
func TestConnectionsAreLeft(t *testing.T) {
	t.Parallel()
	w, _ := rooted(t)
	for perMillion, least := range map[int]int{0: 0, 20_000: 1} {
		w.write("tenancy.yaml", strings.Replace(header, "timeout: 5s", fmt.Sprintf("timeout: 5s, goawayPerMillion: %d", perMillion), 1)+entry("eu1", ", root: true")+strings.ReplaceAll(entry(fmt.Sprintf("v%d", perMillion), ""), fmt.Sprintf("v%d-", perMillion), "eu1-"))
		waittest.Until(t, func() error {
			if now := w.gateway.Clusters(); !slices.Contains(now, fmt.Sprintf("v%d", perMillion)) {
				return fmt.Errorf("%v", now)
			}
			return nil
		})
		watch := w.open(t.Context(), "alice-token", http.MethodGet, podsPath+"?watch=1", "")
		fresh := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
			if !i.Reused {
				fresh++
			}
		}})
		for range 1000 {
			if code, text := w.read(w.open(ctx, "alice-token", http.MethodGet, podsPath, ""), nil); code != http.StatusOK {
				t.Fatalf("%d: %s", code, text)
			}
		}
		if fresh < least || least == 0 && fresh > 0 {
			t.Errorf("%d in a million: %d new connections", perMillion, fresh)
		}
		if !goesOn(read(watch)) {
			t.Error("what was open ended")
		}
		_ = watch.Body.Close()
	}
}
