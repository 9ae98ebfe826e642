// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package tenancy creates, changes and deletes the objects of a tenant: its Tenant object, its
// namespaces, its role bindings and the tenant labels in its namespaces.
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
	// createdByValue is the value of [privileges.CreatedByLabel].
	createdByValue = "kubectl-tenant"
	// subjectLabel is a label with a hash of the subject of a binding. kubectl tenant finds the
	// subject's bindings with this label.
	subjectLabel = tenant.Domain + "/subject"
	podSecurity  = "pod-security.kubernetes.io/enforce"
)

// Errors of this package.
var (
	// ErrRefused reports that the server, or a check of this package, rejected the operation.
	ErrRefused = errors.New("refused")
	// ErrNoNamespace reports that a namespace does not exist, but the caller can create it.
	ErrNoNamespace = errors.New("the namespace does not exist: to create it, use --create-namespace")
	// ErrMissing reports that a namespace does not exist.
	ErrMissing = errors.New("the namespace does not exist")
	// ErrNoRole reports that a role does not exist.
	ErrNoRole = errors.New("no such role in the namespace or the cluster: to list the roles, run kubectl get " +
		"roles,clusterroles")
)

// Grant binds a role to a subject in one namespace.
type Grant struct {
	Subject   rbacv1.Subject
	Namespace string
	// Role is the name of a Role in the namespace, or of a ClusterRole. If ClusterRole is true,
	// only the ClusterRole with this name is bound. Otherwise, a user who may create Roles in the
	// namespace could create a Role with the name of a ClusterRole, and determine the rights that
	// the grant gives.
	Role        string
	ClusterRole bool
	// Expires is when the grant expires. If zero, the grant does not expire.
	Expires time.Time
	// DryRun is the dry run option of all write requests.
	DryRun []string
}

// Binding returns the RoleBinding for a grant. Each combination of a subject and a role has its
// own RoleBinding, so that a revocation affects no other subject.
func (g *Grant) Binding(ref rbacv1.RoleRef) *rbacv1.RoleBinding {
	b := &rbacv1.RoleBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      bindingName(g.Subject, ref),
			Namespace: g.Namespace,
			Labels:    map[string]string{privileges.CreatedByLabel: createdByValue, subjectLabel: hash(subjectText(g.Subject))},
		},
		RoleRef:  ref,
		Subjects: []rbacv1.Subject{g.Subject},
	}
	if !g.Expires.IsZero() {
		b.Annotations = map[string]string{tenant.ExpiresAnnotation: g.Expires.UTC().Format(time.RFC3339)}
	}
	return b
}

// shortHash is the length of the hash in the name of a binding. The hash in [subjectLabel] is
// longer, and distinguishes two subjects whose short hashes are equal.
const shortHash = 10

// bindingName returns a readable name for the binding of a subject to a role. The hash in the name
// differs for each combination of subject and role.
func bindingName(s rbacv1.Subject, ref rbacv1.RoleRef) string {
	const longest = 80 // the maximum length of the name of the role and of the subject
	name := s.Name
	if s.Namespace != "" {
		name = s.Namespace + "." + s.Name
	}
	readable := func(text string) string {
		text = strings.Map(func(r rune) rune {
			if r < '!' || r > '~' || r == '/' || r == '%' { // not allowed in object names
				return '_'
			}
			return r
		}, text)
		return text[:min(len(text), longest)]
	}
	return createdByValue + ":" + readable(ref.Name) + ":" + readable(name) + ":" +
		hash(subjectText(s), ref.Kind, ref.Name)[:shortHash]
}

func subjectText(s rbacv1.Subject) string { return s.Kind + "\x00" + s.Namespace + "\x00" + s.Name }

// hash returns a hash of the parts. The result is a valid label value.
func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x01")))
	return hex.EncodeToString(sum[:16])
}

// Apply creates the RoleBinding, or corrects the existing one. It returns the binding and the verb
// for [output.Changes]. The error may wrap [ErrRefused], [ErrNoNamespace] or [ErrNoRole].
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
	expires, hasEnd := got.Annotations[tenant.ExpiresAnnotation]
	if got.RoleRef == want.RoleRef && len(got.Subjects) == 1 && got.Subjects[0] == want.Subjects[0] &&
		got.Labels[subjectLabel] == want.Labels[subjectLabel] && ends == hasEnd && until == expires {
		return got, output.Unchanged, nil
	}
	if got.RoleRef != want.RoleRef { // another caller created the binding, and roleRef is immutable
		return nil, "", fmt.Errorf("%w: RoleBinding %s/%s already exists and binds %s %s: delete it first",
			ErrRefused, g.Namespace, want.Name, got.RoleRef.Kind, got.RoleRef.Name)
	}
	if expires := got.Labels[subjectLabel]; expires != "" && expires != want.Labels[subjectLabel] {
		return nil, "",
			fmt.Errorf("%w: RoleBinding %s/%s already exists for another identity: delete it "+
				"first", ErrRefused, g.Namespace, want.Name)
	}
	// Another caller changed the binding, or the grant has a new expiration. kubectl tenant owns
	// the binding, so Apply corrects it.
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

// isAboutRole reports whether the error means that the role was not found. Depending on the check
// that failed, the error names a clusterrole, or a rolebinding with the name of the role.
func (g *Grant) isAboutRole(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	missing := status.Status().Details
	return strings.HasSuffix(strings.TrimSuffix(missing.Kind, "s"), "role") ||
		strings.HasPrefix(missing.Kind, "rolebinding") && missing.Name == g.Role
}

// role returns a reference to the role. A Role in the namespace takes precedence over a
// ClusterRole with the same name. If the caller may not read the Role, role returns the
// ClusterRole, and the server validates the binding.
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

// Revoked contains the names of a subject's RoleBindings in a namespace after [Grant.Revoke].
type Revoked struct {
	// Deleted contains the bindings that Revoke deleted. Changed contains the bindings from which
	// Revoke removed the subject, and which still have other subjects.
	Deleted, Changed []string
	// Remaining contains the subject's bindings that [Grant.Apply] did not create.
	Remaining []string
}

// Revoke removes the subject from the bindings that [Grant.Apply] created for it in the namespace.
// If Role is set, Revoke changes only bindings to a role with this name. If Revoke fails, r
// contains the changes before the failure.
func (g *Grant) Revoke(ctx context.Context, k kube.Interface) (r Revoked, err error) {
	bindings := k.RbacV1().RoleBindings(g.Namespace)
	list, err := bindings.List(ctx, metav1.ListOptions{})
	if err != nil {
		return r, refusal(err)
	}
	for i := range list.Items {
		b := &list.Items[i]
		if g.Role != "" && b.RoleRef.Name != g.Role || !slices.Contains(b.Subjects, g.Subject) {
			continue
		}
		isCreatedByUs := b.Labels[privileges.CreatedByLabel] == createdByValue &&
			b.Labels[subjectLabel] == hash(subjectText(g.Subject))
		switch {
		case !isCreatedByUs:
			r.Remaining = append(r.Remaining, b.Name)
		case len(b.Subjects) > 1: // another caller added subjects
			b.Subjects = slices.DeleteFunc(b.Subjects, func(s rbacv1.Subject) bool { return s == g.Subject })
			if _, err := bindings.Update(ctx, b, metav1.UpdateOptions{DryRun: g.DryRun}); err != nil {
				return r, refusal(err)
			}
			r.Changed = append(r.Changed, b.Name)
		default:
			err := bindings.Delete(ctx, b.Name,
				metav1.DeleteOptions{DryRun: g.DryRun, Preconditions: metav1.NewUIDPreconditions(string(b.UID))})
			if err != nil && !apierrors.IsNotFound(err) {
				return r, refusal(err)
			}
			r.Deleted = append(r.Deleted, b.Name)
		}
	}
	if len(list.Items) == 0 { // the list is also empty if the namespace does not exist
		if _, err := k.CoreV1().Namespaces().Get(ctx, g.Namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return r, fmt.Errorf("namespace %s: %w", g.Namespace, ErrMissing)
		}
	}
	return r, nil
}

// refusal returns a Forbidden or Invalid error from the server on one line. The result wraps
// [ErrRefused], and names the rights that the caller lacks. refusal returns any other error
// unchanged.
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

// newNamespace returns a namespace of a tenant. If the ID is zero, the namespace has no tenant.
func newNamespace(name string, owner tenant.ID) *corev1.Namespace {
	ns := &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	if !owner.IsZero() && !owner.IsSystem() {
		// The server sets the same default for namespaces that tenants' callers create.
		ns.Labels = map[string]string{tenant.Label: owner.String(), podSecurity: "baseline"}
	}
	return ns
}

// CreateNamespace creates a namespace of a tenant, unless the namespace exists. If owner is zero,
// the server determines the owner. The error may wrap [ErrRefused].
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

// selector returns a label selector for the given labels.
func selector(set map[string]string) string { return labels.SelectorFromSet(set).String() }
