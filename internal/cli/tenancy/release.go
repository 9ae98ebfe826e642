// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/internal/kube"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/plugins/namespace"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// releaseChecks is how often the contents are checked after the label was removed.
	// releaseCheckInterval is the time between two checks. Servers observe the removal with a
	// delay, and until then they may store requests that they already admitted.
	releaseChecks        = 4
	releaseCheckInterval = 500 * time.Millisecond
	// releaseTimeout is the maximum time to wait until objects are deleted.
	releaseTimeout = 2 * time.Minute
)

// Manager contains clients that impersonate [tenant.ManagerUser].
type Manager struct {
	Kube    kube.Interface
	Dynamic dynamic.Interface
}

// NewManager returns clients that impersonate [tenant.ManagerUser] with the given groups. The
// caller must have the right to impersonate this user and these groups.
func NewManager(config *rest.Config, groups ...string) (m Manager, err error) {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: tenant.ManagerUser, Groups: groups}
	if m.Kube, err = kube.NewForConfig(config); err != nil {
		return m, err
	}
	config.ContentType = "" // custom resources have no protobuf encoding
	m.Dynamic, err = dynamic.NewForConfig(config)
	return m, err
}

// Release removes a namespace from its tenant. After an interruption at any step, it may be
// repeated. The Namespace has the annotation [tenant.ReleasingAnnotation] from the removal of its
// label until the last step. During this time, admission rejects its assignment to a tenant.
type Release struct {
	Writing
	// Kube and Objects are the caller's clients. Manager contains clients of [tenant.ManagerUser].
	Kube    kube.Interface
	Objects dynamic.Interface
	Manager Manager
	// System contains the system namespaces. They always belong to the system tenant, so only the
	// objects that the server manages are deleted in them.
	System []string
	// Force deletes the objects that block the release. If ClientDryRun is true, no write request
	// is sent.
	Force, ClientDryRun bool
	// WatchesContinue specifies that the server does not end the watches of callers that lose
	// access to a namespace.
	WatchesContinue bool
	// Confirm is called with the namespace and its tenant before the first write. If Confirm
	// returns an error, the release ends. If nil, the release needs no confirmation.
	Confirm func(namespace, tenant string) error
	// Warn prints a warning about a risk that remains and that the caller must check.
	Warn func(format string, args ...any)

	// custom contains the custom resources that the server serves.
	custom []schema.GroupVersionResource
	// published contains the objects that Publications copy, keyed by the name of the Publication.
	published map[string]publication.Source
}

// ErrNamespaceNotEmpty reports that a namespace contains objects through which its former tenant
// could retain access.
var ErrNamespaceNotEmpty = errors.New("the namespace is not empty")

// Run releases a namespace. The error may wrap [ErrNamespaceNotEmpty] or [ErrRefused], or be the
// error from [Release.Confirm].
func (r *Release) Run(ctx context.Context, name string) error {
	ns, err := r.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return refusal(err)
	}
	label, labelled := ns.Labels[tenant.Label]
	former, begun := ns.Annotations[tenant.ReleasingAnnotation]
	switch {
	case !labelled && !begun:
		r.Changes.Print(namespaceKind, name, output.Unchanged)
		return nil
	case ns.DeletionTimestamp != nil:
		return fmt.Errorf("%w: namespace %s is being deleted", ErrRefused, name)
	case labelled:
		former = label
	}
	if err := r.readPublications(ctx); err != nil {
		return err
	}
	systemOwned := former == tenant.System().String() || slices.Contains(r.System, name)
	if systemOwned {
		err = r.checkSystem(ctx, name)
	} else {
		err = r.check(ctx, name)
	}
	if err != nil {
		return err
	}
	dry := r.ClientDryRun || len(r.DryRun) > 0
	if r.Confirm != nil && !dry {
		if err := r.Confirm(name, former); err != nil {
			return err
		}
	}
	if dry {
		if !systemOwned {
			if err := r.previewContents(ctx, name); err != nil {
				return err
			}
		}
		return r.preview(ctx, ns, former)
	}
	if systemOwned {
		err = r.releaseSystem(ctx, ns, former)
	} else {
		err = r.release(ctx, ns, former)
	}
	if err != nil {
		return err
	}
	r.Changes.Print(namespaceKind, name, output.Released)
	return nil
}

// check returns an error if a namespace contains objects that block its release, or if the server
// does not end watches in the namespace. With Force, check returns neither error, but warns of the
// watches. check also warns of the objects that will remain.
func (r *Release) check(ctx context.Context, name string) (err error) {
	if r.custom, err = customResources(r.Kube.Discovery()); err != nil {
		return err
	}
	if !r.Force {
		if err := r.refuseContents(ctx, name); err != nil {
			return err
		}
	}
	if err := r.warnOfRemaining(ctx, name); err != nil {
		return err
	}
	if !r.WatchesContinue {
		return nil
	}
	problem := fmt.Sprintf("callers of the tenant may keep open watches in namespace %s, and see objects of the next "+
		"tenant, until kube-apiserver restarts or the watches time out (up to an hour)", name)
	if r.Force {
		r.Warn("%s", problem)
		return nil
	}
	return fmt.Errorf("%w: %s (use --force to continue)", ErrRefused, problem)
}

// previewContents reports the objects that a release would delete in a namespace.
func (r *Release) previewContents(ctx context.Context, name string) error {
	found, err := r.contents(ctx, name)
	if err != nil {
		return err
	}
	for i := range found {
		r.deleted(&found[i])
	}
	r.Printf("serviceaccounts/default in namespace %s would be recreated", name)
	return nil
}

// preview reports what a release would do. In a server dry run, it also sends the patch that
// removes the label.
func (r *Release) preview(ctx context.Context, ns *corev1.Namespace, former string) error {
	if _, labelled := ns.Labels[tenant.Label]; labelled && !r.ClientDryRun {
		if err := r.removeLabel(ctx, ns, former); err != nil {
			return err
		}
	}
	r.Changes.Print(namespaceKind, ns.Name, output.Released)
	return nil
}

// refuseContents returns an error that wraps [ErrNamespaceNotEmpty] if a namespace contains objects
// that block its release.
func (r *Release) refuseContents(ctx context.Context, name string) error {
	found, err := r.contents(ctx, name)
	if err != nil || len(found) == 0 {
		return err
	}
	return fmt.Errorf(
		"%w: namespace %s contains %s (use --force to delete them)",
		ErrNamespaceNotEmpty,
		name,
		summary(found),
	)
}

// release removes a namespace from its tenant. After the removal of the label, the tenant's
// callers are denied access, and only requests that were admitted earlier may still be stored.
func (r *Release) release(ctx context.Context, ns *corev1.Namespace, former string) error {
	_, labelled := ns.Labels[tenant.Label]
	if r.Force {
		if err := r.clear(ctx, ns.Name); err != nil {
			return err
		}
	}
	if err := r.removeLabel(ctx, ns, former); err != nil {
		return err
	}
	for check := range releaseChecks {
		if check > 0 {
			if err := pause(ctx, releaseCheckInterval); err != nil {
				return err
			}
		}
		err := r.clearLateObjects(ctx, ns.Name)
		if errors.Is(err, ErrNamespaceNotEmpty) && labelled { // this run removed the label
			return errors.Join(err, r.revert(ctx, ns, former))
		}
		if err != nil {
			return err
		}
	}
	if err := r.deleteManaged(ctx, ns.Name); err != nil {
		return err
	}
	if err := r.recreateAccount(ctx, ns.Name); err != nil {
		return err
	}
	if err := r.unlabel(ctx, ns.Name, publishing()...); err != nil {
		return err
	}
	// A server that had not yet observed the removal may have created managed objects again.
	if err := errors.Join(r.deleteManaged(ctx, ns.Name), r.clearLateObjects(ctx, ns.Name)); err != nil {
		return err
	}
	return r.complete(ctx, ns)
}

// clearLateObjects deletes blocking objects that were created after the check. Without Force, it
// returns an error if there are such objects.
func (r *Release) clearLateObjects(ctx context.Context, name string) error {
	if r.Force {
		return r.clearAll(ctx, name)
	}
	return r.refuseContents(ctx, name)
}

// removeLabel sets [tenant.ReleasingAnnotation]. In the same write, it removes the tenant label,
// and restores the labels and annotations that the server changed for the Tenant. It returns an
// error if the Namespace was recreated or has another tenant.
func (r *Release) removeLabel(ctx context.Context, ns *corev1.Namespace, former string) error {
	tenantLabels, err := r.labelsOf(ctx, former)
	if err != nil {
		return err
	}
	return retry.RetryOnConflict(notObservedBackoff(), func() error {
		now, err := r.Kube.CoreV1().Namespaces().Get(ctx, ns.Name, metav1.GetOptions{})
		switch {
		case err != nil:
			return refusal(err)
		case now.UID != ns.UID:
			return fmt.Errorf("%w: namespace %s was recreated after the confirmation", ErrRefused, ns.Name)
		}
		label, labelled := now.Labels[tenant.Label]
		switch {
		case labelled && label != former:
			return fmt.Errorf("%w: namespace %s now belongs to tenant %s", ErrRefused, ns.Name, label)
		case !labelled:
			return nil // an earlier run removed the label
		}
		labels := map[string]any{tenant.Label: nil}
		for key, value := range tenantLabels {
			if now.Labels[key] == value && key != podSecurity {
				labels[key] = nil
			}
		}
		record, _ := namespace.AddedLabelsOf(now)
		for key, before := range record.Labels() {
			if before != nil || key != podSecurity { // a Pod Security level remains if there was no level before
				labels[key] = before
			}
		}
		return r.patch(ctx, now, labels, map[string]any{
			tenant.PreparedAnnotation:    nil,
			tenant.GivenLabelsAnnotation: nil,
			tenant.HeldAnnotation:        nil,
			tenant.KeystoneAnnotation:    nil,
			tenant.ReleasingAnnotation:   former,
		}, r.DryRun)
	})
}

// labelsOf returns the labels that a Tenant specifies for its namespaces.
func (r *Release) labelsOf(ctx context.Context, former string) (map[string]string, error) {
	id, err := tenant.Parse(former)
	if err != nil || id.IsSystem() {
		return nil, nil //nolint:nilerr // an invalid label names no Tenant
	}
	u, err := r.Objects.Resource(tenantObjects).Get(ctx, id.ObjectName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, refusal(err)
	}
	t, err := typed.Decode[v1alpha1.Tenant](u)
	if err != nil {
		return nil, err
	}
	return tenants.Labels(t.Spec.Namespaces.Labels), nil
}

// revert restores the tenant label because the release found blocking objects. If the namespace
// was held, revert also restores the annotation [tenant.HeldAnnotation].
func (r *Release) revert(ctx context.Context, ns *corev1.Namespace, former string) error {
	annotations := map[string]any{tenant.ReleasingAnnotation: nil}
	if hold, ok := ns.Annotations[tenant.HeldAnnotation]; ok {
		annotations[tenant.HeldAnnotation] = hold
	}
	return r.patchIfUnchanged(ctx, ns, map[string]any{tenant.Label: former}, annotations)
}

// complete removes [tenant.ReleasingAnnotation]. The namespace may then be assigned to a tenant
// again.
func (r *Release) complete(ctx context.Context, ns *corev1.Namespace) error {
	return r.patchIfUnchanged(ctx, ns, nil, map[string]any{tenant.ReleasingAnnotation: nil})
}

// patchIfUnchanged patches a Namespace unless it was recreated or got a tenant label since it was
// read.
func (r *Release) patchIfUnchanged(
	ctx context.Context,
	ns *corev1.Namespace,
	labels, annotations map[string]any,
) error {
	return retry.RetryOnConflict(notObservedBackoff(), func() error {
		now, err := r.Kube.CoreV1().Namespaces().Get(ctx, ns.Name, metav1.GetOptions{})
		if err != nil {
			return refusal(err)
		}
		if _, labelled := now.Labels[tenant.Label]; labelled || now.UID != ns.UID {
			return fmt.Errorf("%w: another caller changed namespace %s", ErrRefused, ns.Name)
		}
		return r.patch(ctx, now, labels, annotations, nil)
	})
}

// patch writes the labels and annotations of a Namespace as the manager. It returns a Conflict
// error if the Namespace has changed since it was read.
func (r *Release) patch(
	ctx context.Context, ns *corev1.Namespace, labels, annotations map[string]any, dryRun []string,
) error {
	metadata := map[string]any{"uid": ns.UID, "resourceVersion": ns.ResourceVersion, "annotations": annotations}
	if labels != nil { // null would remove all labels
		metadata["labels"] = labels
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = r.Manager.Kube.CoreV1().Namespaces().Patch(ctx, ns.Name, types.MergePatchType, body,
		metav1.PatchOptions{DryRun: dryRun})
	if apierrors.IsConflict(err) {
		return err
	}
	return refusal(err)
}

// pause waits for a duration, or until ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// summary lists objects, grouped by resource. For each resource, it has the number of objects and
// the first three names.
func summary(found []blocker) string {
	const named = 3
	var kinds []string
	names := map[string][]string{}
	for i := range found {
		kind := found[i].resource.GroupResource().String()
		if names[kind] == nil {
			kinds = append(kinds, kind)
		}
		names[kind] = append(names[kind], found[i].name)
	}
	for i, kind := range kinds {
		all := names[kind]
		kinds[i] = fmt.Sprintf("%s: %d (%s)", kind, len(all), strings.Join(all[:min(named, len(all))], ", "))
		if len(all) > named {
			kinds[i] = strings.TrimSuffix(kinds[i], ")") + ", ...)"
		}
	}
	return strings.Join(kinds, ", ")
}
