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
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/cluster/template"
	"github.com/kubetenant/kubetenant/cluster/tenants"
	"github.com/kubetenant/kubetenant/internal/typed"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

const (
	// maxPublished limits the bytes of all copies of a Publication together.
	maxPublished = 256 << 20
	// fullCount is the number of namespaces of one tenant that count for maxPublished. Otherwise a tenant
	// with many namespaces could stop a Publication for all tenants.
	fullCount = 100
	// prunedAlone is the number of copies that are deleted when their source is not found. More copies
	// remain until [tenant.PruneAnnotation] confirms the deletion.
	prunedAlone = 20
	// pruneAgain is the time until the engine checks again whether a deleted Publication has copies.
	pruneAgain = 5 * time.Second
	// publishedAfter is the interval at which the statuses of Publications are written.
	publishedAfter = 5 * time.Second
	// refusedAgain is the time until the engine tries namespaces again that lack a copy, and maxRetried
	// is how many it tries.
	refusedAgain = time.Minute
	maxRetried   = 100
	// readAgain is the time until the engine reads a source again. It may have missed a change.
	readAgain = 10 * time.Minute
)

// errConflict reports that an older source gives the object.
var errConflict = errors.New("conflict")

// published is the state of a Publication and its source. It is never changed.
type published struct {
	of *publication.Publication
	// resource is the resource of the source, or the zero value if its kind cannot be published.
	resource schema.GroupVersionResource
	// content is what the copies should be. If nil, the copies remain as they are, unless gone is set.
	content *publication.Content
	// last is the last content that was known.
	last *publication.Content
	// gone reports that all copies are to be deleted.
	gone bool
	// reason and message are those of the condition Ready while content is nil.
	reason, message string
	// since is the time of the last change of the content or the selection.
	since time.Time
}

// lastHash returns the hash of the last content that was known, or "" if none was.
func (p *published) lastHash() string {
	if p.last == nil {
		return ""
	}
	return p.last.Hash
}

// publisher reads Publications and their sources, and writes the status of Publications. The engine
// writes the copies.
type publisher struct {
	e            *Engine
	publications typed.Client[v1alpha1.Publication, *v1alpha1.Publication]
	names        workqueue.TypedRateLimitingInterface[string] // Publications to read with their sources

	mu    sync.RWMutex
	known map[string]*published
	// refused has the errors of the last attempts by Publication and namespace.
	refused map[string]map[string]error
	// applied has the hashes of the contents that this process wrote, by Publication and namespace.
	applied map[string]map[string]string
	// touched has the Publications whose status may not be current.
	touched map[string]bool
}

func newPublisher(e *Engine) *publisher {
	return &publisher{
		e:            e,
		publications: typed.NewClient[v1alpha1.Publication](e.Dynamic, resourceOf(v1alpha1.ResourcePublications)),
		names: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryAtFirst, retryAtLast)),
		known:   map[string]*published{},
		refused: map[string]map[string]error{},
		applied: map[string]map[string]string{},
		touched: map[string]bool{},
	}
}

// rules returns the rules of Publications.
func (p *publisher) rules() *publication.Rules {
	if p.e.Rules == nil {
		return &publication.Rules{}
	}
	return p.e.Rules()
}

// resolveAll reads all Publications and their sources once.
func (p *publisher) resolveAll(ctx context.Context) {
	all, _ := p.e.Tenants.Publications()
	for _, of := range all {
		if err := p.resolve(ctx, of.Name); err != nil {
			p.names.AddRateLimited(of.Name)
		}
	}
}

// run keeps the Publications up to date until ctx ends.
func (p *publisher) run(ctx context.Context) {
	p.e.Tenants.OnPublication(func(name string) { p.names.Add(name) })
	defer p.e.Tenants.OnPublication(nil)
	all, _ := p.e.Tenants.Publications()
	for _, of := range all {
		p.names.Add(of.Name) // it may have changed since resolveAll
	}
	var running sync.WaitGroup
	running.Go(func() { work(ctx, p.names, 0, p.resolve) })
	running.Go(func() { wait.UntilWithContext(ctx, p.writeStatuses, publishedAfter) })
	running.Go(func() { newSources(p).run(ctx) })
	<-ctx.Done()
	p.names.ShutDown()
	running.Wait()
}

// get returns the state of a Publication, or nil if it is not known.
func (p *publisher) get(name string) *published {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.known[name]
}

// resolve reads a Publication and its source. If the content of the copies or their selection has
// changed, it queues the namespaces.
func (p *publisher) resolve(ctx context.Context, name string) error {
	was := p.get(name)
	of := p.e.Tenants.Publication(name)
	if of == nil {
		p.forget(name, was)
		return nil
	}
	now, err := p.read(ctx, of)
	if err == nil {
		now.resource, _ = p.rules().Resource(of.From.Kind)
	} else {
		if was != nil && was.of.UID == of.UID && was.of.Generation == of.Generation {
			return err // the last state remains
		}
		now = &published{of: of, reason: v1alpha1.ReasonFailed, message: err.Error()}
		now.resource, _ = p.rules().Resource(of.From.Kind)
	}
	if was != nil && was.of.UID == of.UID && now.last == nil {
		now.last = was.last
	}
	now.since = time.Now()
	if was != nil && !was.differs(now) {
		now.since = was.since
	}
	p.mu.Lock()
	p.known[name] = now
	p.mu.Unlock()
	again := readAgain
	if p.retryRefused(name) {
		again = refusedAgain
	}
	if was == nil || was.differs(now) {
		p.queueNamespaces(was, now)
	}
	p.touch(name)
	p.names.AddAfter(name, again)
	if now.gone && of.Deleting {
		return errors.Join(err, p.finish(ctx, of))
	}
	return err
}

// retryRefused queues namespaces that lack the copy of a Publication because of an error, and reports
// whether there are any.
func (p *publisher) retryRefused(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	retried := 0
	for namespace, err := range p.refused[name] { // in another order each time
		if ns, getErr := p.e.lister.Get(namespace); getErr != nil || ns.DeletionTimestamp != nil {
			delete(p.refused[name], namespace)
			continue
		}
		if errors.Is(err, errConflict) {
			continue // a change of the other source brings the next attempt
		}
		if retried++; retried > maxRetried {
			break
		}
		p.e.looksDrifted(namespace)
		p.e.later.Add(namespace)
	}
	return retried > 0
}

// forget removes the state of a Publication that does not exist or does not decode. Its copies remain.
// The state of a deleted Publication remains too, for a copy that was written meanwhile.
func (p *publisher) forget(name string, was *published) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if was == nil || !was.gone {
		delete(p.known, name)
	} else {
		p.known[name] = &published{of: was.of, resource: was.resource, gone: true}
	}
	delete(p.refused, name)
	delete(p.applied, name)
	p.e.Published.forget(name)
}

// differs reports whether two states of a Publication give different objects.
func (p *published) differs(from *published) bool {
	return p.of.UID != from.of.UID || p.of.Generation != from.of.Generation || p.gone != from.gone ||
		(p.content == nil) != (from.content == nil) || p.content != nil && p.content.Hash != from.content.Hash
}

// queueNamespaces queues the namespaces that one of two states of a Publication selects.
func (p *publisher) queueNamespaces(states ...*published) {
	all, err := p.e.lister.List(labels.Everything())
	if err != nil {
		return
	}
	for _, ns := range all {
		id := p.e.OwnerOf(ns)
		if slices.ContainsFunc(states, func(s *published) bool { return s != nil && p.e.Tenants.Selects(s.of, id) }) {
			p.e.later.Add(ns.Name)
		}
	}
}

// read returns the state of a Publication. It fails if the source cannot be read now.
func (p *publisher) read(ctx context.Context, of *publication.Publication) (*published, error) {
	if of.Deleting {
		return p.readDeleted(ctx, of)
	}
	if !of.Retained {
		if err := p.retain(ctx, of); err != nil {
			return nil, err
		}
	}
	refuse := func(reason, format string, args ...any) (*published, error) {
		return &published{of: of, reason: reason, message: fmt.Sprintf(format, args...)}, nil
	}
	resource, err := p.rules().Resource(of.From.Kind)
	if err != nil {
		return refuse(v1alpha1.ReasonSourceRefused, "%v", err)
	}
	ns, err := p.e.lister.Get(of.From.Namespace)
	switch {
	case of.From.Namespace == p.e.Unseen:
		return refuse(v1alpha1.ReasonSourceRefused, "spec.from.namespace: the webhook service does not see all writes in "+
			"its namespace %s, so its objects cannot be published", of.From.Namespace)
	case err == nil && !p.e.OwnerOf(ns).IsSystem():
		return refuse(v1alpha1.ReasonSourceRefused,
			"spec.from.namespace: the namespace %s does not belong to the system tenant", of.From.Namespace)
	}
	u, err := p.e.Dynamic.Resource(resource).Namespace(of.From.Namespace).Get(ctx, of.From.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return p.readMissing(ctx, of, resource)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", of.From, err)
	}
	role, err := publication.RoleOf(ctx, p.e.Client.RbacV1(), u)
	if err != nil {
		return nil, err
	}
	content, err := p.rules().Content(u, role)
	if err != nil {
		return refuse(v1alpha1.ReasonSourceRefused, "%v", err)
	}
	// Content that an author confirmed on the source replaces what was confirmed on the Publication.
	// Otherwise an author without the rights could write the earlier content again.
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
	return &published{of: of, content: content, last: content}, nil
}

// readMissing returns the state of a Publication whose source does not exist.
func (p *publisher) readMissing(
	ctx context.Context, of *publication.Publication, resource schema.GroupVersionResource,
) (*published, error) {
	out := &published{of: of, reason: v1alpha1.ReasonSourceMissing, message: of.From.String() + " does not exist"}
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

// hasMoreCopies reports whether a Publication has more than some copies of a kind.
func (p *publisher) hasMoreCopies(
	ctx context.Context, name string, resource schema.GroupVersionResource, than int64,
) (bool, error) {
	list, err := p.e.Metadata.Resource(resource).List(ctx,
		metav1.ListOptions{LabelSelector: tenant.PublicationLabel + "=" + name, Limit: than + 1})
	if apierrors.IsNotFound(err) { // the kind is no longer defined
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list the copies: %w", err)
	}
	return int64(len(list.Items)) > than, nil
}

// readDeleted returns the state of a Publication that is being deleted. If its definition is being
// deleted, the copies remain.
func (p *publisher) readDeleted(ctx context.Context, of *publication.Publication) (*published, error) {
	name := v1alpha1.Resource(v1alpha1.ResourcePublications).String()
	definition, err := p.e.Dynamic.Resource(tenants.Definitions()).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && definition.GetDeletionTimestamp() != nil:
		if err := p.release(ctx, of); err != nil {
			return nil, err
		}
		return &published{of: of}, nil // no status is written any longer
	case err != nil:
		return nil, err
	}
	return &published{of: of, gone: true}, nil
}

// finish removes the finalizer of a deleted Publication that has no copies.
func (p *publisher) finish(ctx context.Context, of *publication.Publication) error {
	if _, err := p.rules().Resource(of.From.Kind); err != nil {
		return fmt.Errorf("the copies cannot be deleted until their kind can be published again: %w", err)
	}
	for _, resource := range p.e.kinds() {
		more, err := p.hasMoreCopies(ctx, of.Name, resource, 0)
		if err != nil {
			return err
		}
		if more {
			p.names.AddAfter(of.Name, pruneAgain)
			return nil
		}
	}
	return p.release(ctx, of)
}

// retain adds the finalizer to a Publication, and release removes it.
func (p *publisher) retain(ctx context.Context, of *publication.Publication) error {
	return p.patchFinalizers(ctx, of, func(others []string) []string {
		return append(others, tenant.PublicationFinalizer)
	})
}

func (p *publisher) release(ctx context.Context, of *publication.Publication) error {
	return p.patchFinalizers(ctx, of, func(others []string) []string { return others })
}

// patchFinalizers writes the result of change for the finalizers of others, if it differs.
func (p *publisher) patchFinalizers(
	ctx context.Context, of *publication.Publication, change func(others []string) []string,
) error {
	stored, err := p.publications.Get(ctx, cache.ObjectName{Name: of.Name})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	next := change(slices.DeleteFunc(slices.Clone(stored.Finalizers),
		func(f string) bool { return f == tenant.PublicationFinalizer }))
	if stored.UID != of.UID || len(next) == len(stored.Finalizers) {
		return nil
	}
	if err := p.e.writes.wait(ctx, tenant.ID{}, adds); err != nil {
		return err
	}
	_, err = p.publications.PatchRead(ctx, stored, map[string]any{"metadata": map[string]any{"finalizers": next}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// copies returns the number of copies of a Publication that count for maxPublished.
func (p *publisher) copies(of *publication.Publication) (n int) {
	all, err := p.e.lister.List(labels.Everything())
	if err != nil {
		return 0
	}
	byTenant := map[tenant.ID]int{}
	for _, ns := range all {
		id := p.e.OwnerOf(ns)
		if ns.DeletionTimestamp == nil && byTenant[id] < fullCount && p.e.Tenants.Selects(of, id) {
			byTenant[id]++
			n++
		}
	}
	return n
}

// addPublished adds the Publications that select a tenant to the content of its namespaces.
func (e *Engine) addPublished(id tenant.ID, to *given) {
	p := e.published
	all, known := e.Tenants.PublicationsOf(id)
	to.unread = !known
	to.publication = p.get
	for _, of := range all {
		state := p.get(of.Name)
		if state == nil || state.of.UID != of.UID || state.of.Generation != of.Generation {
			to.unread = true // its namespaces are queued when it was read
		}
		if state != nil {
			to.published = append(to.published, state)
		}
	}
}

// isCurrent fails unless the state of every Publication is that of its current version.
func (p *publisher) isCurrent(ctx context.Context) error {
	list, err := p.e.Metadata.Resource(resourceOf(v1alpha1.ResourcePublications)).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) { // the kind is not defined
		return nil
	}
	if err != nil {
		return fmt.Errorf("list Publications: %w", err)
	}
	for i := range list.Items {
		is := p.get(list.Items[i].Name)
		if is == nil || is.of.UID != list.Items[i].UID || is.of.Generation != list.Items[i].Generation {
			return errBehind
		}
	}
	return nil
}

// tellPublished records the result of an attempt for the Publications of a namespace.
func (e *Engine) tellPublished(namespace string, gives *given, result *objects) {
	p := e.published
	p.mu.Lock()
	for _, is := range gives.published {
		name := is.of.Name
		p.touched[name] = true
		if err := result.refused[name]; err != nil {
			if p.refused[name] == nil {
				p.refused[name] = map[string]error{}
			}
			p.refused[name][namespace] = err
			continue
		}
		delete(p.refused[name], namespace)
		if result.applied && is.content != nil && result.selecting[name] {
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

// kinds returns the kinds of the objects that templates and Publications may give, in order.
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
