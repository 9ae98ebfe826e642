// Package isolation asks a live server for everything that it serves, and tries all of it across the
// line between two throwaway tenants: nothing but denials may come back.
package isolation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options say on which server, and as whom, the matrix is tried.
type Options struct {
	// Admin is the configuration of somebody who may do everything.
	Admin *rest.Config
	// Tenants are the two throwaway tenants. Nothing of theirs may exist.
	Tenants [2]string
	// User is the configuration of a user of the first tenant. Nil: the admin impersonates one.
	User *rest.Config
	// Progress is told what is being done. Nil for nobody.
	Progress func(string)
	// Shape is that of the server. Empty: it is asked, which cannot tell a gateway.
	Shape Shape
	// Through is where the callers of a gateway send their requests: its address and authority count. Nil: to the server.
	Through *rest.Config
	// Groups are the API groups whose resources are tried. Empty: all that the server serves.
	Groups []string
	// Parallel is how many requests run at the same time; 0 means 8.
	Parallel int
}

// Shape is how tenants came into a server. What differs stands in docs/webhook.md.
type Shape string

// The shapes.
const (
	CompiledIn Shape = "compiled in"
	Webhook    Shape = "webhook"
	Gateway    Shape = "gateway"
)

// ShapeOf tells the shape by whether the webhooks are installed.
func ShapeOf(ctx context.Context, admin kubernetes.Interface) (Shape, error) {
	_, err := admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, webhooksName, metav1.GetOptions{})
	switch {
	case err == nil:
		return Webhook, nil
	case apierrors.IsNotFound(err):
		return CompiledIn, nil
	}
	return "", err
}

// webhooksName is that of the webhook configurations, as they are generated.
const webhooksName = "kubetenant"

// Outcome is what came of a request.
type Outcome int

// The outcomes.
const (
	Denied  Outcome = iota // 401 or 403 by authorization
	Limited                // a list or watch of the caller's own objects, or something that everybody may read
	Passed                 // an own request that authorization let through
	Leaked                 // a foreign request that authorization let through
	Refused                // an own request that was denied
)

// Cell counts the outcomes of one caller in one space.
type Cell struct {
	Caller, Space string
	Counts        [5]int
}

// Report is the outcome of the whole matrix.
type Report struct {
	Shape     Shape
	Resources int // resources and subresources that the server serves
	Cells     []*Cell
	// Problems are the requests that were leaked or refused, and disagreements of self reviews.
	Problems []string
}

// OK reports whether nothing leaked and nothing of one's own was refused.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

// Total returns how many requests had an outcome.
func (r *Report) Total(o Outcome) int {
	n := 0
	for _, c := range r.Cells {
		n += c.Counts[o]
	}
	return n
}

// Write writes the table.
func (r *Report) Write(w io.Writer) {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, "CALLER\tSPACE\tTRIED\tDENIED\tOWN ONLY\tALLOWED\tLEAKED\tREFUSED")
	row := func(caller, space string, n [5]int) {
		tried := 0
		for _, c := range n {
			tried += c
		}
		_, _ = fmt.Fprintf(out, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\n", caller, space, tried, n[Denied], n[Limited], n[Passed], n[Leaked], n[Refused])
	}
	var sum [5]int
	for _, c := range r.Cells {
		row(c.Caller, c.Space, c.Counts)
		for i := range c.Counts {
			sum[i] += c.Counts[i]
		}
	}
	row("all", "", sum)
	_ = out.Flush()
	for _, p := range r.Problems {
		_, _ = fmt.Fprintln(w, p)
	}
}

// matrix is one run.
type matrix struct {
	Options
	world  *world
	mu     sync.Mutex
	report Report
	// answers are what authorization said to each caller about each question.
	answers map[*caller]map[question]bool
}

// question is what a request asks of authorization.
type question = authorizationv1.ResourceAttributes

// Run makes the tenants, tries the matrix and removes what it made. The error means that not all could be
// tried; what was found is in the report, if there is one.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Parallel == 0 {
		o.Parallel = 8
	}
	m := &matrix{Options: o, answers: map[*caller]map[question]bool{}}
	w, err := makeWorld(ctx, &m.Options)
	if w != nil {
		defer func() {
			o.Progress("removing the tenants")
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			err = errors.Join(err, w.remove(ctx))
		}()
	}
	if err != nil {
		return nil, err
	}
	m.world, m.report.Shape = w, w.shape
	served, err := discover(w.admin)
	if err != nil {
		return nil, err
	}
	for _, group := range o.Groups {
		if len(ofGroups(served, []string{group})) == 0 {
			return nil, fmt.Errorf("the server serves nothing of the API group %q", group)
		}
	}
	tried := ofGroups(served, o.Groups)
	m.report.Resources = len(tried)
	for _, step := range []struct {
		what string
		do   func(context.Context, []resource) error
		of   []resource
	}{
		{"requests of everything, everywhere", m.tryAll, tried},
		{"what admission holds", m.tryHeld, tried},
		{"what lists and watches deliver", m.tryDelivery, tried},
		{"self reviews", m.tryReviews, served}, // they tell of what was not tried too
		{"watches across the end of a namespace", m.tryRecreation, tried},
	} {
		o.Progress(step.what)
		if err := step.do(ctx, step.of); err != nil {
			return &m.report, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	slices.Sort(m.report.Problems)
	slices.SortFunc(m.report.Cells, func(a, b *Cell) int {
		return cmp.Or(cmp.Compare(slices.Index(callers, a.Caller), slices.Index(callers, b.Caller)),
			cmp.Compare(slices.Index(spaces, a.Space), slices.Index(spaces, b.Space)))
	})
	return &m.report, nil
}

// note counts an outcome.
func (m *matrix) note(caller, space string, o Outcome, problem string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := slices.IndexFunc(m.report.Cells, func(c *Cell) bool { return c.Caller == caller && c.Space == space })
	if at < 0 {
		at = len(m.report.Cells)
		m.report.Cells = append(m.report.Cells, &Cell{Caller: caller, Space: space})
	}
	m.report.Cells[at].Counts[o]++
	if o == Leaked || o == Refused {
		m.report.Problems = append(m.report.Problems, fmt.Sprintf("%s: %s in %s: %s", map[Outcome]string{Leaked: "LEAKED", Refused: "REFUSED"}[o], caller, space, problem))
	}
}

// tryAll sends every request of every caller.
func (m *matrix) tryAll(ctx context.Context, served []resource) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(m.Parallel)
	for _, c := range m.world.callers {
		for _, r := range served {
			for _, p := range m.probes(c, r) {
				group.Go(func() error { return m.try(ctx, c, p) })
			}
		}
	}
	return group.Wait()
}

// try sends one request and notes its outcome.
func (m *matrix) try(ctx context.Context, c *caller, p probe) error {
	a, err := c.send(ctx, p.method, p.path, p.body, p.header)
	if err != nil {
		return fmt.Errorf("%s %s: %w", p.method, p.path, err)
	}
	outcome := Denied
	switch {
	case p.own && a.deniedByAuthorization():
		outcome = Refused
	case p.own:
		outcome = Passed
	case a.deniedByAuthorization():
	case p.limited != nil && p.limited(a):
		outcome = Limited
	default:
		outcome = Leaked
	}
	m.note(c.name, p.space, outcome, fmt.Sprintf("%s %s: %d %s", p.method, p.path, a.code, a.message()))
	if p.review != nil {
		m.record(c, p, a)
	}
	return nil
}

// record keeps what authorization said, which must be the same each time.
func (m *matrix) record(c *caller, p probe, a answer) {
	allowed := !a.deniedByAuthorization()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answers[c] == nil {
		m.answers[c] = map[question]bool{}
	}
	q := *p.review
	q.Version = "" // no rule is about it
	if before, known := m.answers[c][q]; known && before != allowed {
		m.report.Problems = append(m.report.Problems, fmt.Sprintf("%s: %s %s was answered in two ways", c.name, p.method, p.path))
	}
	m.answers[c][q] = allowed
}

// answer is what came back.
type answer struct {
	code int
	body []byte
}

// authorizersForm is how the message of a 403 by authorization goes on behind the resource
// (k8s.io/apiserver pkg/endpoints/handlers/responsewriters, v0.37.1).
var authorizersForm = regexp.MustCompile(`[Uu]ser "(?:[^"\\]|\\.)*" cannot `)

// deniedByAuthorization tells a 403 of an authorizer from one of admission.
func (a answer) deniedByAuthorization() bool {
	return a.code == http.StatusUnauthorized || a.code == http.StatusForbidden && authorizersForm.MatchString(a.message())
}
