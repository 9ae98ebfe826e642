package tenants

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

func templateResource() schema.GroupVersionResource {
	return v1alpha1.Resource(v1alpha1.ResourceNamespaceTemplates)
}

// templates are the NamespaceTemplates.
type templates struct {
	informer cache.SharedIndexInformer
	handled  cache.ResourceEventHandlerRegistration

	mu    sync.RWMutex
	named map[string]*v1alpha1.NamespaceTemplate // never changed
	told  func(name string)
}

// newTemplates follows those that client sees as soon as its informer runs.
func newTemplates(client dynamic.Interface) (*templates, error) {
	t := &templates{named: map[string]*v1alpha1.NamespaceTemplate{},
		informer: dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(templateResource()).Informer()}
	var err error
	t.handled, err = t.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: t.set, UpdateFunc: func(_, is any) { t.set(is) },
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				t.put(name.Name, nil)
			}
		}})
	return t, err
}

func (t *templates) set(obj any) {
	u, is := obj.(*unstructured.Unstructured)
	if !is {
		return
	}
	read, err := v1alpha1.TemplateOf(u)
	if err != nil { // a later release's
		klog.Background().Info("A NamespaceTemplate is not understood, and counts as if it were not there", "template", u.GetName(), "err", err)
		read = nil
	}
	t.put(u.GetName(), read)
}

// put takes over what a template says, nil for one that is not there.
func (t *templates) put(name string, is *v1alpha1.NamespaceTemplate) {
	t.mu.Lock()
	if is != nil {
		t.named[name] = is
	} else {
		delete(t.named, name)
	}
	told := t.told
	t.mu.Unlock()
	if told != nil {
		told(name)
	}
}

// TemplatesSynced reports whether the NamespaceTemplates of the start are known: that there are none, too.
func (s *Store) TemplatesSynced() bool { return s.knows(templateResource(), s.templates.handled) }

// Template returns a NamespaceTemplate, nil where there is none that is understood; false where that is not known. It must not be changed.
func (s *Store) Template(name string) (t *v1alpha1.NamespaceTemplate, known bool) {
	if !s.TemplatesSynced() {
		return nil, false
	}
	s.templates.mu.RLock()
	defer s.templates.mu.RUnlock()
	return s.templates.named[name], true
}

// OnTemplate has f told of each tenant whose Tenant names a NamespaceTemplate that comes, changes or goes. One f at a time; nil for nobody.
func (s *Store) OnTemplate(f func(tenant.ID)) {
	s.templates.mu.Lock()
	defer s.templates.mu.Unlock()
	s.templates.told = nil
	if f != nil {
		s.templates.told = func(name string) {
			for _, id := range s.naming(name) {
				f(id)
			}
		}
	}
}

// naming returns the tenants whose Tenant names a template.
func (s *Store) naming(template string) (ids []tenant.ID) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for id, is := range s.live {
		if slices.Contains(is.spaces.Templates, template) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Holds reports whether Pods wait in a new namespace of a tenant until it is prepared: a template holds them that its Tenant names, or
// one of these is not known.
func (s *Store) Holds(id tenant.ID) bool {
	is := s.of(id)
	return is != nil && slices.ContainsFunc(is.spaces.Templates, func(name string) bool {
		t, known := s.Template(name)
		return !known || t == nil || t.Spec.Hold
	})
}
