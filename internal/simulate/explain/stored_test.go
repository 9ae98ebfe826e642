package explain_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/internal/simulate/explain"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestChangesOfManagedObjects explains that only the server changes a copy, for every caller.
func TestChangesOfManagedObjects(t *testing.T) {
	const isCopy = "the object is a copy of the platform's Publication registry, " +
		"and only the server may change it: change " +
		"the source or the Publication instead"
	labeled := map[string]string{tenant.ManagedLabel: "publication", tenant.PublicationLabel: "registry"}
	templated := map[string]string{tenant.ManagedLabel: "template"}
	alice, root := somebody("alice", "acme", "dev"), somebody("root", "system", "system:masters")
	for name, c := range map[string]struct {
		verb, subresource, namespace string
		labels                       map[string]string
		user                         user.Info
		want                         string
	}{
		"delete": {verb: "delete", labels: labeled, want: isCopy},
		"update": {verb: "update", labels: labeled, want: isCopy},
		"patch":  {verb: "patch", labels: labeled, want: isCopy},
		"a cluster admin": {
			verb:   "delete",
			labels: labeled,
			user:   root,
			want:   isCopy,
		},
		"the server": {verb: "delete", labels: labeled, user: somebody(tenant.ManagerUser, "system")},
		"get":        {verb: "get", labels: labeled},
		"status":     {verb: "update", subresource: "status", labels: labeled},
		"an object of a template": {
			verb:   "delete",
			labels: templated,
			want:   "the object belongs to the server (kubetenant.dev/managed: template)",
		},
		"an object of the tenant":    {verb: "delete"},
		"a label of the copy alone":  {verb: "delete", labels: map[string]string{tenant.PublicationLabel: "registry"}},
		"a namespace that is ending": {verb: "delete", labels: labeled, namespace: "acme--ending"},
	} {
		t.Run(name, func(t *testing.T) {
			ending := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name:              "acme--ending",
				Labels:            map[string]string{tenant.Label: "acme"},
				DeletionTimestamp: &metav1.Time{},
			}}
			if c.user == nil {
				c.user = alice
			}
			if c.namespace == "" {
				c.namespace = "acme--baseline"
			}
			r := ask(c.verb, strings.TrimSuffix("secrets/"+c.subresource, "/"), c.namespace)
			r.Name = "registry"
			var why string
			e := explained(t, c.user, r, func(q *explain.Query) {
				writing(t, corev1.SchemeGroupVersion.WithKind("Secret"), nil, ending)(q)
				q.Stored = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "registry", Labels: c.labels}}
				why = q.ManagedRefusal()
			})
			refused := e.Admission == explain.Refused && strings.Contains(e.Reason, c.want) && e.Decision == "deny"
			if c.want != "" && !refused || c.want == "" && e.Admission == explain.Refused {
				t.Errorf("%s, %s: %s; want %q", e.Decision, e.Admission, e.Reason, c.want)
			}
			if !strings.HasPrefix(why, c.want) || c.want == "" && why != "" {
				t.Errorf("ManagedRefusal() = %q; want %q", why, c.want)
			}
		})
	}
}
