package tenantquota

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
)

// maxMeasured bounds how many quotas have metrics: the first that were seen.
const maxMeasured = 1000

// measures are the metrics of quotas. They follow the informer.
type measures struct {
	hard, used *metrics.GaugeVec

	mu   sync.Mutex
	said map[string][]map[string]string // the labels of each quota, by its name
}

// Metrics returns what the quotas allow and what is used of them, by tenant and resource, of 1,000
// quotas at most. They follow the store from the call on, which is made once, before [Store.Run].
func (q *Store) Metrics() ([]metrics.Registerable, error) {
	gauge := func(name, help string) *metrics.GaugeVec {
		return metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace:      "kubetenant",
			Subsystem:      "quota",
			Name:           name,
			Help:           help,
			StabilityLevel: metrics.ALPHA,
		}, []string{"tenant", "resource"})
	}
	m := &measures{
		said: map[string][]map[string]string{},
		hard: gauge("hard", "Limit of a tenant by its TenantQuota, in the base unit of the resource (cores, bytes, objects). "+
			"At most 1,000 TenantQuotas have metrics."),
		used: gauge("used", "Usage of a tenant in its TenantQuota, in the base unit of the resource (cores, bytes, objects). "+
			"At most 1,000 TenantQuotas have metrics."),
	}
	_, err := q.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    m.set,
		UpdateFunc: func(_, is any) { m.set(is) },
		DeleteFunc: m.drop,
	})
	return []metrics.Registerable{m.hard, m.used}, err
}

func (m *measures) set(obj any) {
	u, is := obj.(*unstructured.Unstructured)
	if !is {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	name := u.GetName()
	if _, known := m.said[name]; !known && len(m.said) >= maxMeasured {
		return
	}
	m.forget(name)
	m.said[name] = nil
	for _, from := range []struct {
		gauge *metrics.GaugeVec
		path  []string
	}{{m.hard, []string{"spec", "hard"}}, {m.used, []string{"status", "used"}}} {
		values, _, _ := unstructured.NestedMap(u.Object, from.path...)
		for of, value := range values {
			text, isText := value.(string)
			amount, err := resource.ParseQuantity(text)
			if number, isNumber := value.(int64); isNumber {
				amount, err = *resource.NewQuantity(number, resource.DecimalSI), nil
			} else if !isText {
				continue
			}
			if err != nil {
				continue
			}
			labels := map[string]string{"tenant": tenantIn(u), "resource": of}
			from.gauge.With(labels).Set(amount.AsApproximateFloat64())
			m.said[name] = append(m.said[name], labels)
		}
	}
}

func (m *measures) drop(obj any) {
	if gone, is := obj.(cache.DeletedFinalStateUnknown); is {
		obj = gone.Obj
	}
	u, is := obj.(*unstructured.Unstructured)
	if !is {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(u.GetName())
	delete(m.said, u.GetName())
}

func (m *measures) forget(name string) {
	for _, labels := range m.said[name] {
		m.hard.Delete(labels)
		m.used.Delete(labels)
	}
}
