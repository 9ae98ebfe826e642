// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package tenancy makes and takes away what a tenant is made of: its namespaces, the bindings of
// its people and the label of its objects.
package tenancy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/cli/privileges"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/tenant"
)

const (
	// maker is the value of [privileges.MadeByLabel].
	maker = "kubectl-tenant"
	// subjectLabel specifies a hash of the subject of a binding. kubectl tenant finds the binding by it.
	subjectLabel = tenant.Domain + "/subject"
	podSecurity  = "pod-security.kubernetes.io/enforce"
)

// The errors of this package.
var (
	// ErrRefused says that the server, or its RBAC, refuses what was asked.
	ErrRefused = errors.New("refused")
	// ErrNoNamespace says that a namespace does not exist.
	ErrNoNamespace = errors.New("the namespace does not exist: to create it, use --create-namespace")
	// ErrMissing says the same where none is to be made.
	ErrMissing = errors.New("the namespace does not exist")
	// ErrNoRole says that a role does not exist.
	ErrNoRole = errors.New("no such role in the namespace or the cluster: to list the roles, run kubectl get " +
		"roles,clusterroles")
)

// Grant is what somebody gets in one namespace.
type Grant struct {
	Subject   rbacv1.Subject
	Namespace string
	// Role is the name of a Role of the namespace or of a ClusterRole; with ClusterRole only of that:
	// whoever makes roles in the namespace must not choose what a well-known name means.
	Role        string
	ClusterRole bool
	// Expires is when it ends; zero for never.
	Expires time.Time
	// DryRun is what requests carry.
	DryRun []string
}

// Binding returns the binding of a grant: one for each subject and role, so that taking it
// away touches nobody else.
func (g *Grant) Binding(ref rbacv1.RoleRef) *rbacv1.RoleBinding {
	b := &rbacv1.RoleBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      bindingName(g.Subject, ref),
			Namespace: g.Namespace,
			Labels:    map[string]string{privileges.MadeByLabel: maker, subjectLabel: hash(subjectText(g.Subject))},
		},
		RoleRef:  ref,
		Subjects: []rbacv1.Subject{g.Subject},
	}
	if !g.Expires.IsZero() {
		b.Annotations = map[string]string{tenant.ExpiresAnnotation: g.Expires.UTC().Format(time.RFC3339)}
	}
	return b
}

// shortHash is how much of a hash a binding's name holds: two of one name are
// told apart by the label.
const shortHash = 10

// bindingName says who has what, and is another for each subject and role.
func bindingName(s rbacv1.Subject, ref rbacv1.RoleRef) string {
	const longest = 80 // of each part that others choose
	name := s.Name
	if s.Namespace != "" {
		name = s.Namespace + "." + s.Name
	}
	readable := func(text string) string {
		text = strings.Map(func(r rune) rune {
			if r < '!' || r > '~' || r == '/' || r == '%' { // as names in paths may be
				return '_'
			}
			return r
		}, text)
		return text[:min(len(text), longest)]
	}
	return maker + ":" + readable(ref.Name) + ":" + readable(name) + ":" +
		hash(subjectText(s), ref.Kind, ref.Name)[:shortHash]
}

func subjectText(s rbacv1.Subject) string { return s.Kind + "\x00" + s.Namespace + "\x00" + s.Name }

// hash is short enough for a label's value; two subjects do not meet in it.
func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x01")))
	return hex.EncodeToString(sum[:16])
}

// Apply creates the binding, or corrects the existing one. It returns the verb for [output.Changes].
// The error wraps [ErrRefused], [ErrNoNamespace] or [ErrNoRole].
func (g *Grant) Apply(ctx context.Context, k kube.Interface) (b *rbacv1.RoleBinding, verb string, err error) {
	ref, err := g.role(ctx, k)
	if err != nil {
		return nil, "", err
	}
	want := g.Binding(ref)
	bindings := k.RbacV1().RoleBindings(g.Namespace)
	got, err := bindings.Create(ctx, want, metav1.CreateOptions{DryRun: g.DryRun})
	switch {
	case err == nil:
		got.TypeMeta = want.TypeMeta
		return got, output.Created, nil
	case apierrors.IsNotFound(err) && g.isAboutRole(err):
		return nil, "", fmt.Errorf("role %s: %w", g.Role, ErrNoRole)
	case apierrors.IsNotFound(err):
		return nil, "", fmt.Errorf("namespace %s: %w", g.Namespace, ErrNoNamespace)
	case !apierrors.IsAlreadyExists(err):
		return nil, "", refusal(err)
	}
	got, err = bindings.Get(ctx, want.Name, metav1.GetOptions{})
	if err != nil {
		return nil, "", err
	}
	got.TypeMeta = want.TypeMeta
	until, ends := want.Annotations[tenant.ExpiresAnnotation]
	has, hasEnd := got.Annotations[tenant.ExpiresAnnotation]
	if got.RoleRef == want.RoleRef && len(got.Subjects) == 1 && got.Subjects[0] == want.Subjects[0] &&
		got.Labels[subjectLabel] == want.Labels[subjectLabel] && ends == hasEnd && until == has {
		return got, output.Unchanged, nil
	}
	if got.RoleRef != want.RoleRef { // which never changes: somebody else made it, with this name
		return nil, "", fmt.Errorf("%w: RoleBinding %s/%s already exists and binds %s %s: delete it first",
			ErrRefused, g.Namespace, want.Name, got.RoleRef.Kind, got.RoleRef.Name)
	}
	if has := got.Labels[subjectLabel]; has != "" && has != want.Labels[subjectLabel] {
		return nil, "",
			fmt.Errorf("%w: RoleBinding %s/%s already exists for another identity: delete it "+
				"first", ErrRefused, g.Namespace, want.Name)
	}
	// Somebody changed it, or it is to end at another time: it is this command's, and
	// says what it is for again.
	got.Subjects = want.Subjects
	if got.Labels == nil {
		got.Labels = map[string]string{}
	}
	maps.Copy(got.Labels, want.Labels)
	if delete(got.Annotations, tenant.ExpiresAnnotation); ends {
		metav1.SetMetaDataAnnotation(&got.ObjectMeta, tenant.ExpiresAnnotation, until)
	}
	got, err = bindings.Update(ctx, got, metav1.UpdateOptions{DryRun: g.DryRun})
	return got, output.Configured, refusal(err)
}

// isAboutRole reports whether it is the role that was not found: a lister, which the server asks,
// says clusterrole, and its check of what may be given rolebindings by the role's name.
func (g *Grant) isAboutRole(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	missing := status.Status().Details
	return strings.HasSuffix(strings.TrimSuffix(missing.Kind, "s"), "role") ||
		strings.HasPrefix(missing.Kind, "rolebinding") && missing.Name == g.Role
}

// role returns the role that is meant: the namespace's before the cluster's. One that may not be
// read is taken for the cluster's, which the server judges.
func (g *Grant) role(ctx context.Context, k kube.Interface) (rbacv1.RoleRef, error) {
	if g.ClusterRole {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: g.Role}, nil
	}
	_, err := k.RbacV1().Roles(g.Namespace).Get(ctx, g.Role, metav1.GetOptions{})
	if err == nil {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: g.Role}, nil
	}
	if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return rbacv1.RoleRef{}, err
	}
	_, err = k.RbacV1().ClusterRoles().Get(ctx, g.Role, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return rbacv1.RoleRef{}, fmt.Errorf("role %s: %w", g.Role, ErrNoRole)
	case err != nil && !apierrors.IsForbidden(err):
		return rbacv1.RoleRef{}, err
	}
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: g.Role}, nil
}

// Revoked are the names of the RoleBindings of a subject in a namespace.
type Revoked struct {
	// Deleted are the bindings that Revoke deleted, Changed are those that keep other subjects.
	Deleted, Changed []string
	// Left are bindings of the subject that [Grant.Apply] did not create.
	Left []string
}

// Revoke removes the bindings that [Grant.Apply] created for the subject in the namespace. With a
// role, it removes only the binding of that role. If Revoke fails, the result contains what it did
// before.
func (g *Grant) Revoke(ctx context.Context, k kube.Interface) (r Revoked, err error) {
	bindings := k.RbacV1().RoleBindings(g.Namespace)
	list, err := bindings.List(ctx, metav1.ListOptions{})
	if err != nil {
		return r, refusal(err)
	}
	for i := range list.Items {
		b := &list.Items[i]
		ours := b.Labels[privileges.MadeByLabel] == maker && b.Labels[subjectLabel] == hash(subjectText(g.Subject))
		switch {
		case g.Role != "" && b.RoleRef.Name != g.Role:
		case ours && len(b.Subjects) > 1 && slices.Contains(b.Subjects, g.Subject): // somebody added others
			b.Subjects = slices.DeleteFunc(b.Subjects, func(s rbacv1.Subject) bool { return s == g.Subject })
			if _, err := bindings.Update(ctx, b, metav1.UpdateOptions{DryRun: g.DryRun}); err != nil {
				return r, refusal(err)
			}
			r.Changed = append(r.Changed, b.Name)
		case ours && len(b.Subjects) == 1 && b.Subjects[0] == g.Subject:
			err := bindings.Delete(ctx, b.Name,
				metav1.DeleteOptions{DryRun: g.DryRun, Preconditions: metav1.NewUIDPreconditions(string(b.UID))})
			if err != nil && !apierrors.IsNotFound(err) {
				return r, refusal(err)
			}
			r.Deleted = append(r.Deleted, b.Name)
		case slices.Contains(b.Subjects, g.Subject):
			r.Left = append(r.Left, b.Name)
		}
	}
	if len(list.Items) == 0 { // which is also the answer about a namespace that does not exist
		if _, err := k.CoreV1().Namespaces().Get(ctx, g.Namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return r, fmt.Errorf("namespace %s: %w", g.Namespace, ErrMissing)
		}
	}
	return r, nil
}

// refusal returns what the server says against a request, in one line that names what is lacking.
func refusal(err error) error {
	if err == nil || !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return err
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	if _, lacking, found := strings.Cut(text, "is attempting to grant RBAC permissions not currently held: "); found {
		return fmt.Errorf("%w: you cannot grant rights that you do not have; missing: %s", ErrRefused, lacking)
	}
	return fmt.Errorf("%w: %s", ErrRefused, text)
}

// newNamespace returns a namespace of a tenant; of nobody's with the zero ID.
func newNamespace(name string, owner tenant.ID) *corev1.Namespace {
	ns := &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	if !owner.IsZero() && !owner.IsSystem() {
		// As the server does for namespaces that tenants make themselves, with its default.
		ns.Labels = map[string]string{tenant.Label: owner.String(), podSecurity: "baseline"}
	}
	return ns
}

// CreateNamespace makes a namespace of a tenant, unless it is there; the zero ID leaves it to the
// server whose it is. The error wraps [ErrRefused].
func CreateNamespace(
	ctx context.Context, k kube.Interface, name string, owner tenant.ID, dryRun []string,
) (made bool, err error) {
	_, err = k.CoreV1().Namespaces().Create(ctx, newNamespace(name, owner), metav1.CreateOptions{DryRun: dryRun})
	if !apierrors.IsAlreadyExists(err) {
		return err == nil, refusal(err)
	}
	if owner.IsZero() {
		return false, nil
	}
	got, err := k.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, refusal(err)
	}
	if authz.OwnerOf(got) != owner {
		return false, fmt.Errorf("%w: namespace %s already exists and does not belong to tenant %s", ErrRefused, name, owner)
	}
	return false, nil
}

// selector is that of labels.
func selector(of map[string]string) string { return labels.SelectorFromSet(of).String() }
