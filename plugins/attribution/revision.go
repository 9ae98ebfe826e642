package attribution

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kubetenant/kubetenant/plugins"
	"github.com/kubetenant/kubetenant/tenant"
)

var revisionKind = appsv1.SchemeGroupVersion.WithKind("ControllerRevision")

// checkRevision holds ControllerRevisions: the controllers of StatefulSets and DaemonSets make pods from
// the template that one holds, and are trusted with what it says.
func (p *plugin) checkRevision(c *caller, a admission.Attributes, o admission.ObjectInterfaces) error {
	if c.controller {
		return nil
	}
	revision, err := plugins.Versioned[appsv1.ControllerRevision](a.GetObject(), revisionKind, o)
	if err != nil {
		return err
	}
	raw := revision.Data.Raw
	if raw == nil && revision.Data.Object != nil {
		if raw, err = json.Marshal(revision.Data.Object); err != nil {
			return err
		}
	}
	if len(raw) == 0 {
		return nil
	}
	var data struct {
		Spec struct {
			Template struct {
				Metadata struct{ Annotations map[string]string }
			}
		}
	}
	if err := json.Unmarshal(raw, &data); err != nil {
		return errUser // of a form that no controller writes
	}
	value, has := data.Spec.Template.Metadata.Annotations[tenant.WorkloadUserAnnotation]
	if mine, err := own(c); !has || err == nil && value == mine {
		return nil
	}
	return p.maySupply(c, value)
}
