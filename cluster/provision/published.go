// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/cluster/template"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// maxPublished is the maximum total size of all copies of a Publication in bytes.
	maxPublished = 256 << 20
	// fullCount is the maximum number of namespaces of one tenant whose copies are included in
	// the total size. Otherwise, a tenant with many namespaces could prevent a Publication for
	// all tenants.
	fullCount = 100
	// prunedAlone is the maximum number of copies that are deleted without confirmation if the
	// source does not exist. If a Publication has more copies, all copies remain until
	// [tenant.PruneAnnotation] confirms the deletion.
	prunedAlone = 20
	// statusEvery is the interval at which the status of Publications is written.
	statusEvery = 5 * time.Second
	// retryRefusedEvery is the interval at which the engine retries namespaces that lack a copy
	// because of an error. maxRetried is the maximum number of namespaces of a Publication that it
	// retries each time.
	retryRefusedEvery = time.Minute
	maxRetried        = 100
	// rereadEvery is the interval at which the engine reads a source again, in case it missed a
	// change.
	rereadEvery = 10 * time.Minute
)

// errConflict reports that an older template or Publication defines the same object.
var errConflict = errors.New("conflict")

// published is the state of a Publication and its source. It is not changed after it is stored.
type published struct {
	publication *publication.Publication
	// resource is the resource of the source, or the zero value if its kind cannot be published.
	resource schema.GroupVersionResource
	// content is the content that the copies should have. If nil, the copies remain unchanged, unless
	// gone is set.
	content *publication.Content
	// lastContent is the last known content.
	lastContent *publication.Content
	// gone specifies that all copies must be deleted.
	gone bool
	// invalid reports that the Publication does not decode or is invalid. Its selection is not known,
	// so its copies remain unchanged, unless gone is set.
	invalid bool
	// reason and message are used for the condition Ready while content is nil.
	reason, message string
	// since is the time of the last change of the content or the selection.
	since time.Time
}

// lastHash returns the hash of the last known content, or "" if no content was known.
func (p *published) lastHash() string {
	if p.lastContent == nil {
		return ""
	}
	return p.lastContent.Hash
}

// isVersionOf reports whether p is the state of the given version of a Publication. p may be nil.
func (p *published) isVersionOf(of *publication.Publication) bool {
	return p != nil && p.publication.UID == of.UID && p.publication.Generation == of.Generation
}

// prunes reports whether a copy must be deleted from a namespace that should not have this copy.
// isSelected specifies whether the Publication selects the namespace.
func (p *published) prunes(isSelected bool) bool {
	return p.gone || !p.invalid && (p.content != nil || !isSelected)
}

// publisher reads Publications and their sources, and writes the status of Publications. The engine
// writes the copies.
type publisher struct {
	engine       *Engine
	publications typed.Client[v1alpha1.Publication, *v1alpha1.Publication]
	names        workqueue.TypedRateLimitingInterface[string] // Publications to read with their sources
	deletions    workqueue.TypedRateLimitingInterface[string] // Publications that are being deleted

	mu    sync.RWMutex
	known map[string]*published
	// refused has the errors from writing copies, keyed by Publication and namespace.
	refused map[string]map[string]error
	// applied has the hashes of the copies that this process wrote, with the same keys.
	applied map[string]map[string]string
	// dirty has the Publications whose status may be outdated.
	dirty map[string]bool
}

func newPublisher(e *Engine) *publisher {
	return &publisher{
		engine:       e,
		publications: typed.NewClient[v1alpha1.Publication](e.Dynamic, resourceOf(v1alpha1.ResourcePublications)),
		names: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryAtFirst, retryAtLast)),
		deletions: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstDeletionRetry, retryAtLast)),
		known:   map[string]*published{},
		refused: map[string]map[string]error{},
		applied: map[string]map[string]string{},
		dirty:   map[string]bool{},
	}
}

// rules returns the rules for Publications.
func (p *publisher) rules() *publication.Rules {
	if p.engine.Rules == nil {
		return &publication.Rules{}
	}
	return p.engine.Rules()
}

// resolveAll reads all Publications and their sources once. Failed reads are retried later.
func (p *publisher) resolveAll(ctx context.Context) {
	for _, name := range p.all() {
		if err := p.resolve(ctx, name); err != nil {
			p.names.AddRateLimited(name)
		}
	}
}

// all returns the names of all Publications, including the invalid ones.
func (p *publisher) all() []string {
	names := p.engine.Tenants.InvalidPublications()
	all, _ := p.engine.Tenants.Publications()
	for _, of := range all {
		names = append(names, of.Name)
	}
	return names
}

// run processes changes of Publications and sources until ctx ends.
func (p *publisher) run(ctx context.Context) {
	p.engine.Tenants.OnPublication(func(name string) { p.names.Add(name) })
	defer p.engine.Tenants.OnPublication(nil)
	for _, name := range p.all() {
		p.names.Add(name) // the Publication may have changed since resolveAll
	}
	var running sync.WaitGroup
	running.Go(func() { work(ctx, p.names, 0, p.resolve) })
	for range deletionWorkers {
		running.Go(func() { work(ctx, p.deletions, retryVerbosity, p.handleDeletion) })
	}
	running.Go(func() { wait.UntilWithContext(ctx, p.writeStatuses, statusEvery) })
	running.Go(func() { newSources(p).run(ctx) })
	<-ctx.Done()
	p.names.ShutDown()
	p.deletions.ShutDown()
	running.Wait()
}

// get returns the state of a Publication, or nil if it is not known.
func (p *publisher) get(name string) *published {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.known[name]
}

// resolve reads a Publication and its source. If the copies must change, it queues their
// namespaces. It queues a Publication that is being deleted for [publisher.handleDeletion].
func (p *publisher) resolve(ctx context.Context, name string) error {
	was := p.get(name)
	of, now := p.engine.Tenants.Publication(name), p.readInvalid(name)
	if of == nil && now != nil {
		of = now.publication
	}
	var err error
	switch {
	case of == nil:
		p.forget(name)
		return nil
	case of.Deleting:
		isKnown := was.isVersionOf(of) && was.publication.Deleting
		// Until [publisher.handleDeletion] runs, the namespaces record that they have copies of this
		// kind.
		ending := &published{publication: of, invalid: now != nil}
		ending.resource, _ = p.rules().Resource(of.From.Kind)
		if isKnown || p.put(was, ending) {
			p.deletions.Add(name)
		} else {
			p.names.Add(name)
		}
		return nil
	case now == nil:
		if now, err = p.read(ctx, of); err != nil {
			if was.isVersionOf(of) {
				return err // the last known state remains
			}
			now = &published{publication: of, reason: v1alpha1.ReasonFailed, message: err.Error()}
		}
		now.resource, _ = p.rules().Resource(of.From.Kind)
	}
	if !p.put(was, now) {
		p.names.Add(name)
		return nil
	}
	again := rereadEvery
	if p.retryRefused(name) {
		again = retryRefusedEvery
	}
	if was == nil || was.differs(now) {
		p.queueNamespaces(was, now)
	}
	p.markDirty(name)
	p.names.AddAfter(name, again)
	return err
}

// put replaces the state was of a Publication with now. It returns false if another worker has
// already replaced was.
func (p *publisher) put(was, now *published) bool {
	now.since = time.Now()
	if was != nil && was.publication.UID == now.publication.UID {
		if now.lastContent == nil {
			now.lastContent = was.lastContent
		}
		if now.resource.Empty() && now.invalid {
			now.resource = was.resource
		}
	}
	if was != nil && !was.differs(now) {
		now.since = was.since
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known[now.publication.Name] != was {
		return false
	}
	p.known[now.publication.Name] = now
	return true
}

// retryRefused queues namespaces that lack the copy of a Publication because of an error other
// than [errConflict], and reports whether it queued a namespace.
func (p *publisher) retryRefused(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	retried := 0
	for namespace, err := range p.refused[name] { // in random order
		if ns, getErr := p.engine.lister.Get(namespace); getErr != nil || ns.DeletionTimestamp != nil {
			delete(p.refused[name], namespace)
			continue
		}
		if errors.Is(err, errConflict) {
			continue // a change of the conflicting source queues the namespace
		}
		if retried++; retried > maxRetried {
			break
		}
		p.engine.markDrifted(namespace)
		p.engine.updates.Add(namespace)
	}
	return retried > 0
}

// forget removes the state of a Publication that no longer exists. If gone is set, it retains the
// state, so that a copy that was written after the deletion began is still deleted.
func (p *publisher) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deletions.Forget(name)
	was := p.known[name]
	if was == nil || !was.gone {
		delete(p.known, name)
	} else {
		p.known[name] = &published{publication: was.publication, resource: was.resource, gone: true}
	}
	delete(p.refused, name)
	delete(p.applied, name)
	p.engine.Published.forget(name)
}

// differs reports whether two states of a Publication may result in different copies.
func (p *published) differs(from *published) bool {
	return !p.isVersionOf(from.publication) || p.gone != from.gone || p.invalid != from.invalid ||
		(p.content == nil) != (from.content == nil) || p.content != nil && p.content.Hash != from.content.Hash
}

// queueNamespaces queues the namespaces of all tenants that one of the given states of a
// Publication selects.
func (p *publisher) queueNamespaces(states ...*published) {
	all, err := p.engine.lister.List(labels.Everything())
	if err != nil {
		return
	}
	for _, ns := range all {
		id := p.engine.OwnerOf(ns)
		if slices.ContainsFunc(
			states,
			func(s *published) bool { return s != nil && p.engine.Tenants.Selects(s.publication, id) },
		) {
			p.engine.updates.Add(ns.Name)
		}
	}
}

// read returns the new state of a Publication. It fails if a request to the server fails.
func (p *publisher) read(ctx context.Context, of *publication.Publication) (*published, error) {
	if !of.Retained {
		if err := p.addFinalizer(ctx, of); err != nil {
			return nil, err
		}
	}
	refuse := func(reason, format string, args ...any) (*published, error) {
		return &published{publication: of, reason: reason, message: fmt.Sprintf(format, args...)}, nil
	}
	resource, err := p.rules().Resource(of.From.Kind)
	if err != nil {
		return refuse(v1alpha1.ReasonSourceRefused, "%v", err)
	}
	ns, err := p.engine.lister.Get(of.From.Namespace)
	switch {
	case of.From.Namespace == p.engine.Unseen:
		return refuse(v1alpha1.ReasonSourceRefused, "spec.from.namespace: the webhook service does not see all writes in "+
			"its namespace %s, so its objects cannot be published", of.From.Namespace)
	case err == nil && !p.engine.OwnerOf(ns).IsSystem():
		return refuse(v1alpha1.ReasonSourceRefused,
			"spec.from.namespace: the namespace %s does not belong to the system tenant", of.From.Namespace)
	}
	u, err := p.engine.Dynamic.Resource(resource).Namespace(of.From.Namespace).Get(ctx, of.From.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return p.readMissing(ctx, of, resource)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", of.From, err)
	}
	role, err := publication.RoleOf(ctx, p.engine.Client.RbacV1(), u)
	if err != nil {
		return nil, err
	}
	content, err := p.rules().Content(u, role)
	if err != nil {
		return refuse(v1alpha1.ReasonSourceRefused, "%v", err)
	}
	// The hash on the source has priority. Otherwise, an author without the rights to publish could
	// restore content that was confirmed only on the Publication.
	confirmed, has := u.GetAnnotations()[tenant.PublishedAnnotation]
	if !has {
		confirmed = of.Checked
	}
	if content.Hash != confirmed {
		return refuse(v1alpha1.ReasonAuthorNotChecked, "the author of the current content of %s was not checked, or lacks "+
			"the rights to publish it. Check the content. Then add or remove the annotation %s of this object, as a caller "+
			"with these rights", of.From, tenant.PublishedAnnotation)
	}
	if n := p.copies(of); n*content.Size > maxPublished {
		return refuse(v1alpha1.ReasonTooLarge, "%d copies of %d bytes are more than %d MiB: select fewer namespaces or "+
			"publish a smaller object", n, content.Size, maxPublished>>20)
	}
	return &published{publication: of, content: content, lastContent: content}, nil
}

// readMissing returns the state of a Publication whose source does not exist.
func (p *publisher) readMissing(
	ctx context.Context, of *publication.Publication, resource schema.GroupVersionResource,
) (*published, error) {
	out := &published{publication: of, reason: v1alpha1.ReasonSourceMissing, message: of.From.String() + " does not exist"}
	if of.Prune {
		out.gone = true
		return out, nil
	}
	more, err := p.hasMoreCopies(ctx, of.Name, resource, prunedAlone)
	if err != nil {
		return nil, err
	}
	out.gone = !more
	if more {
		out.message += fmt.Sprintf(": its copies remain because there are more than %d. Create it again, delete the "+
			"Publication, or set the annotation %s=true on the Publication to delete the copies",
			prunedAlone, tenant.PruneAnnotation)
	}
	return out, nil
}

// copies returns how many copies a Publication should have, with at most fullCount per tenant.
func (p *publisher) copies(of *publication.Publication) (n int) {
	all, err := p.engine.lister.List(labels.Everything())
	if err != nil {
		return 0
	}
	byTenant := map[tenant.ID]int{}
	for _, ns := range all {
		id := p.engine.OwnerOf(ns)
		if ns.DeletionTimestamp == nil && byTenant[id] < fullCount && p.engine.Tenants.Selects(of, id) {
			byTenant[id]++
			n++
		}
	}
	return n
}

// addPublished adds the states of the Publications that select a tenant.
func (e *Engine) addPublished(id tenant.ID, to *desiredState) {
	p := e.published
	all, known := e.Tenants.PublicationsOf(id)
	to.unread, to.publication = !known, p.get
	to.selects = func(of *published) bool { return e.Tenants.Selects(of.publication, id) }
	for _, of := range all {
		state := p.get(of.Name)
		if state == nil || state.publication.UID != of.UID || state.publication.Generation != of.Generation {
			to.unread = true // the namespaces are queued after the Publication has been read
		}
		if state != nil {
			to.published = append(to.published, state)
		}
	}
}

// isCurrent fails unless the known state of each Publication is from its version on the server.
func (p *publisher) isCurrent(ctx context.Context) error {
	list, err := p.engine.Metadata.Resource(resourceOf(v1alpha1.ResourcePublications)).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) { // the kind is not defined
		return nil
	}
	if err != nil {
		return fmt.Errorf("list Publications: %w", err)
	}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp != nil {
			continue // a Publication that is being deleted adds no objects
		}
		is := p.get(list.Items[i].Name)
		if is == nil || is.publication.UID != list.Items[i].UID || is.publication.Generation != list.Items[i].Generation {
			return errStale
		}
	}
	return nil
}

// recordPublished records the result of an attempt to write the copies in a namespace.
func (e *Engine) recordPublished(namespace string, desired *desiredState, result *objects) {
	p := e.published
	p.mu.Lock()
	for _, is := range desired.published {
		name := is.publication.Name
		p.dirty[name] = true
		if err := result.refused[name]; err != nil {
			if p.refused[name] == nil {
				p.refused[name] = map[string]error{}
			}
			p.refused[name][namespace] = err
			continue
		}
		delete(p.refused[name], namespace)
		if result.applied && is.content != nil && result.selecting[name] != nil {
			if p.applied[name] == nil {
				p.applied[name] = map[string]string{}
			}
			p.applied[name][namespace] = is.content.Hash
		} else {
			delete(p.applied[name], namespace)
		}
	}
	p.mu.Unlock()
}

// kinds returns the resources of all objects that templates and Publications can define, sorted.
func (e *Engine) kinds() []schema.GroupVersionResource {
	kinds := map[schema.GroupVersionResource]bool{}
	for _, of := range template.Kinds() {
		kinds[of] = true
	}
	for _, of := range publication.BuiltIn() {
		kinds[of] = true
	}
	e.published.mu.RLock()
	for _, is := range e.published.known {
		if !is.resource.Empty() {
			kinds[is.resource] = true
		}
	}
	e.published.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(kinds), func(a, b schema.GroupVersionResource) int {
		return strings.Compare(a.String(), b.String())
	})
}
