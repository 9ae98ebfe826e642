package gateway

import (
	"net/http"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/kubetenant/kubetenant/tenant"
)

// isUpgrade reports whether a request asks for another protocol, and says which.
func isUpgrade(r *http.Request) bool {
	return r.Header.Get("Upgrade") != "" && httpstream.IsUpgradeRequest(r)
}

// isStream reports whether a request is answered for as long as its caller likes: as kube-apiserver
// has it (k8s.io/apiserver pkg/server/filters BasicLongRunningRequestCheck, and
// pkg/server/config.go, v0.37.1), and whatever is upgraded.
func isStream(r *http.Request, info *request.RequestInfo) bool {
	if isUpgrade(r) {
		return true
	}
	if info == nil {
		return false
	}
	if !info.IsResourceRequest {
		return strings.HasPrefix(info.Path, "/debug/pprof/")
	}
	return info.Verb == "watch" || info.Verb == "proxy" ||
		slices.Contains([]string{"attach", "exec", "proxy", "log", "portforward"}, info.Subresource)
}

// inFlight count what is open of each tenant. The zero value has none open.
// Safe for concurrent use.
type inFlight struct {
	mu   sync.Mutex
	open map[tenant.ID]int
}

// acquire reports whether a tenant has fewer than most open: then it has one more
// until release is called.
func (p *inFlight) acquire(id tenant.ID, most int) (release func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[id] >= most {
		return nil, false
	}
	if p.open == nil {
		p.open = map[tenant.ID]int{}
	}
	p.open[id]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.open[id]--; p.open[id] <= 0 {
			delete(p.open, id)
		}
	}, true
}

func errTooMany() *apierrors.StatusError {
	return apierrors.NewTooManyRequests("the tenant has too many concurrent requests or streams", 1)
}
