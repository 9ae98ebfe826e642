// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const token = "a-token-of-alice-that-is-remembered"

// request is a request as kube-apiserver sends it to the webhook service.
type request struct{ name, path, body string }

func requests() []request {
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"acme--web","labels":{"app":"web"},` +
		`"annotations":{"note":"` + strings.Repeat("x", 1500) + `"}},` +
		`"spec":{"containers":[{"name":"c","image":"example.com/web:1","env":[` +
		strings.TrimSuffix(strings.Repeat(`{"name":"A","value":"some value"},`, 12), ",") +
		`],"resources":{"requests":{"cpu":"100m","memory":"64Mi"}}}],"serviceAccountName":"default"}}`
	const alice = `\"groups\":[\"dev\",\"tenant:acme\",\"system:authenticated\"]}"`
	mutated := strings.NewReplacer(`"app":"web"`, `"app":"web","kubetenant.dev/tenant":"acme"`,
		`"annotations":{`, `"annotations":{"kubetenant.dev/creator":"{\"user\":\"alice\",\"uid\":\"u1\",\"tenant\":\"acme\",`+
			alice+`,"yunikorn.apache.org/user.info":"{\"user\":\"alice\",`+alice+`,`).Replace(pod)
	review := func(object string) string {
		return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",` +
			`"request":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","kind":{"group":"","version":"v1","kind":"Pod"},` +
			`"resource":{"group":"","version":"v1","resource":"pods"},"requestKind":{"group":"","version":"v1","kind":"Pod"},` +
			`"requestResource":{"group":"","version":"v1","resource":"pods"},` +
			`"name":"p","namespace":"acme--web","operation":"CREATE","userInfo":{"username":"alice","uid":"u1",` +
			`"groups":["dev","tenant:acme","system:authenticated"],"extra":{"kubetenant.dev/tenant":["acme"]}},` +
			`"object":` + object +
			`,"oldObject":null,"dryRun":false,"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}`
	}
	const access = `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},` +
		`"spec":{"resourceAttributes":{"namespace":"acme--web","verb":"get","version":"v1","resource":"pods","name":"p"},` +
		`"user":"alice","groups":["dev","tenant:acme","system:authenticated"],` +
		`"extra":{"authentication.kubernetes.io/credential-id":["X509SHA256=ab12"],"kubetenant.dev/source":["tokens"],` +
		`"kubetenant.dev/tenant":["acme"]},"uid":"u1"},"status":{"allowed":false}}`
	return []request{
		{"SubjectAccessReview", "/authorize", access},
		{"SubjectAccessReview, foreign", "/authorize", strings.Replace(access, "acme--web", "globex--web", 1)},
		{
			"TokenReview, remembered",
			"/authenticate",
			`{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","metadata":{},"spec":{"token":"` + token +
				`","audiences":["https://kubernetes.default.svc"]},"status":{"user":{}}}`,
		},
		{"mutate, a pod of 2.4 KB", "/admit/mutate", review(pod)},
		{"validate, the same mutated", "/admit/validate", review(mutated)},
	}
}

// result contains the measurements of one run of a load on one target.
type result struct {
	perSecond float64
	cpu       time.Duration // used by the target per request
	p99       time.Duration
}

// compare measures both targets with each kind of request, in alternating rounds. It then
// measures the service at half of its maximum rate.
func compare(ctx context.Context, nothing, service *target, only string) error {
	fmt.Printf("%-32s %12s %12s %8s %12s %14s\n", "", "empty, CPU", "service, CPU", "ratio", "a second", "p99 at half")
	for _, r := range requests() {
		if !strings.Contains(r.name, only) {
			continue
		}
		var base, own []result
		for range rounds {
			for _, t := range []*target{nothing, service} {
				got, err := load(ctx, t, r, 0)
				if err != nil {
					return fmt.Errorf("%s: %s: %w", t.name, r.name, err)
				}
				if t == nothing {
					base = append(base, got)
				} else {
					own = append(own, got)
				}
			}
		}
		b, o := middle(base), middle(own)
		half, err := load(ctx, service, r, o.perSecond/2)
		if err != nil {
			return err
		}
		fmt.Printf("%-32s %12v %12v %8.2f %12.0f %14v\n",
			r.name, b.cpu, o.cpu, float64(o.cpu)/float64(b.cpu), o.perSecond, half.p99)
	}
	return nil
}

// middle returns the result with the median processor time.
func middle(all []result) result {
	slices.SortFunc(all, func(a, b result) int { return int(a.cpu - b.cpu) })
	return all[len(all)/2]
}

// load sends a request repeatedly for a fixed time. It sends at the given rate, or at the maximum
// rate if rate is 0.
func load(ctx context.Context, t *target, r request, rate float64) (result, error) {
	dir, err := os.MkdirTemp("", "load-")
	if err != nil {
		return result{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	body, log := filepath.Join(dir, "body.json"), filepath.Join(dir, "log")
	if err := os.WriteFile(body, []byte(r.body), 0o600); err != nil {
		return result{}, err
	}
	args := []string{
		"--h1", "-t1", "-c", strconv.Itoa(clients), "-D", strconv.Itoa(int(duration.Seconds())), "-d", body,
		"-H", "Content-Type: application/json", "--log-file", log,
	}
	if rate > 0 {
		args = append(args, "--rps", strconv.FormatFloat(rate/clients, 'f', 0, 64))
	}
	before, err := t.cpu()
	if err != nil {
		return result{}, err
	}
	out, err := exec.CommandContext(ctx, "h2load", append(args, t.base+r.path)...).CombinedOutput() // #nosec G204 -- fixed
	if err != nil {
		return result{}, fmt.Errorf("h2load: %w: %s", err, out)
	}
	after, err := t.cpu()
	if err != nil {
		return result{}, err
	}
	done, err := succeeded(string(out))
	if err != nil {
		return result{}, err
	}
	got := result{perSecond: float64(done) / duration.Seconds(), cpu: (after - before) / time.Duration(done)}
	got.p99, err = percentile(log)
	return got, err
}

// succeeded returns the number of successful requests. It returns an error unless all requests
// succeeded.
func succeeded(output string) (int, error) {
	m := regexp.MustCompile(`(\d+) succeeded, (\d+) failed, (\d+) errored`).FindStringSubmatch(output)
	codes := regexp.MustCompile(`status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx`).FindStringSubmatch(output)
	if m == nil || codes == nil {
		return 0, fmt.Errorf("h2load said: %s", output)
	}
	if m[2] != "0" || m[3] != "0" || codes[3] != "0" || codes[4] != "0" {
		return 0, fmt.Errorf("not all were answered: %s; %s", m[0], codes[0])
	}
	n, err := strconv.Atoi(m[1])
	if err == nil && n == 0 {
		err = errors.New("nothing was answered")
	}
	return n, err
}

// percentile returns the 99th percentile of the response times in the log of h2load. The columns of
// the log are the start, the status and the response time in microseconds.
func percentile(log string) (time.Duration, error) {
	data, err := os.ReadFile(log) // #nosec G304 -- our own
	if err != nil {
		return 0, err
	}
	var times []int
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 3 {
			n, err := strconv.Atoi(f[2])
			if err != nil {
				return 0, err
			}
			times = append(times, n)
		}
	}
	if len(times) == 0 {
		return 0, errors.New("h2load logged nothing")
	}
	slices.Sort(times)
	return time.Duration(times[len(times)*99/100]) * time.Microsecond, nil
}
