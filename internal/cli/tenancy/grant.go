// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package tenancy creates and deletes the objects of a tenant: its namespaces, its role bindings
// and the tenant label of its objects.
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
	// subjectLabel specifies a hash of the subject of a binding. kubectl tenant finds the binding by it.
	subjectLabel = tenant.Domain + "/subject"
	podSecurity  = "pod-security.kubernetes.io/enforce"
)

// Errors of this package.
var (
	// ErrRefused reports that the server, or its RBAC, rejects a request.
	ErrRefused = errors.New("refused")
	// ErrNoNamespace reports that a namespace does not exist and could be created.
	ErrNoNamespace = errors.New("the namespace does not exist: to create it, use --create-namespace")
	// ErrMissing reports that a namespace does not exist.
	ErrMissing = errors.New("the namespace does not exist")
	// ErrNoRole reports that a role does not exist.
	ErrNoRole = errors.New("no such role in the namespace or the cluster: to list the roles, run kubectl get " +
		"roles,clusterroles")
)

// Grant is a role for a subject in one namespace.
type Grant struct {
	Subject   rbacv1.Subject
	Namespace string
	// Role is the name of a Role of the namespace or of a ClusterRole. If ClusterRole is true, it
	// is the name of a ClusterRole only. Otherwise, a user who creates Roles in the namespace could
	// change the meaning of a well-known name.
	Role        string
	ClusterRole bool
	// Expires is the expiration time. If zero, the grant does not expire.
	Expires time.Time
	// DryRun is the dry run option of the requests.
	DryRun []string
}

// Binding returns the binding of a grant. Each subject and role has its own binding, so that a
// revocation affects no other subject.
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

// shortHash is the length of the hash in the name of a binding. The label distinguishes two
// subjects with the same hash.
const shortHash = 10

// bindingName returns a readable name that differs for each subject and role.
func bindingName(s rbacv1.Subject, ref rbacv1.RoleRef) string {
	const longest = 80 // for each part that others choose
	name := s.Name
	if s.Namespace != "" {
		name = s.Namespace + "." + s.Name
	}
	readable := func(text string) string {
		text = strings.Map(func(r rune) rune {
			if r < '!' || r > '~' || r == '/' || r == '%' { // not allowed in names that are part of a path
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

// hash returns a hash that fits in a label value and is unique for each subject.
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
	expires, hasEnd := got.Annotations[tenant.ExpiresAnnotation]
	if got.RoleRef == want.RoleRef && len(got.Subjects) == 1 && got.Subjects[0] == want.Subjects[0] &&
		got.Labels[subjectLabel] == want.Labels[subjectLabel] && ends == hasEnd && until == expires {
		return got, output.Unchanged, nil
	}
	if got.RoleRef != want.RoleRef { // another caller created it, and a roleRef is immutable
		return nil, "", fmt.Errorf("%w: RoleBinding %s/%s already exists and binds %s %s: delete it first",
			ErrRefused, g.Namespace, want.Name, got.RoleRef.Kind, got.RoleRef.Name)
	}
	if expires := got.Labels[subjectLabel]; expires != "" && expires != want.Labels[subjectLabel] {
		return nil, "",
			fmt.Errorf("%w: RoleBinding %s/%s already exists for another identity: delete it "+
				"first", ErrRefused, g.Namespace, want.Name)
	}
	// Another caller changed the binding, or it has a new expiration. This command owns the
	// binding, so it corrects it.
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

// isAboutRole reports whether the error means that the role was not found. Depending on the check,
// the server's error has the kind clusterrole, or the kind rolebindings with the name of the role.
func (g *Grant) isAboutRole(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	missing := status.Status().Details
	return strings.HasSuffix(strings.TrimSuffix(missing.Kind, "s"), "role") ||
		strings.HasPrefix(missing.Kind, "rolebinding") && missing.Name == g.Role
}

// role returns the referenced role. A Role of the namespace precedes a ClusterRole of the same
// name. If the caller may not read the Role, the ClusterRole is used, and the server decides.
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
	// Deleted are the bindings that Revoke deleted. Changed are the bindings that have other
	// subjects and still exist.
	Deleted, Changed []string
	// Remaining are bindings of the subject that [Grant.Apply] did not create.
	Remaining []string
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

// refusal returns the server's error in one line, with the rights that the caller lacks.
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

// newNamespace returns a namespace of a tenant, or without a tenant if the ID is zero.
func newNamespace(name string, owner tenant.ID) *corev1.Namespace {
	ns := &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	if !owner.IsZero() && !owner.IsSystem() {
		// The server sets the same default for namespaces that tenants create.
		ns.Labels = map[string]string{tenant.Label: owner.String(), podSecurity: "baseline"}
	}
	return ns
}

// CreateNamespace creates a namespace of a tenant unless it exists. With the zero ID, the server
// determines the owner. The error wraps [ErrRefused].
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

// selector returns the label selector for labels.
func selector(set map[string]string) string { return labels.SelectorFromSet(set).String() }
