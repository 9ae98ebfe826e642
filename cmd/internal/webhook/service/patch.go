package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/runtime"
)

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// differ finds how an object differs from what it was. It looks at the objects as Go has them: what a field of them
// does not hold, of a newer version of the kind perhaps, stays as it is.
type differ struct {
	text []byte // the object that came
	out  []operation
}

// errPatch says that a change cannot be told.
var errPatch = errors.New("a change of the object cannot be written as a patch")

// patchOf returns the patch from one object to another of its type, nil for none. text is the first as it came: a patch
// may add to an object only what its parent is there for.
func patchOf(text []byte, was, is runtime.Object) ([]byte, error) {
	d := &differ{text: text}
	if reflect.TypeOf(was) != reflect.TypeOf(is) {
		return nil, errPatch
	}
	var err error
	switch was := was.(type) {
	case *customObject:
		is := is.(*customObject)
		if err = d.compare([]string{"metadata"}, reflect.ValueOf(was.ObjectMeta), reflect.ValueOf(is.ObjectMeta)); err == nil && is.Content != nil {
			before, now := maps.Clone(was.UnstructuredContent()), maps.Clone(is.Content)
			delete(before, "metadata")
			delete(now, "metadata")
			err = d.compareKeys(nil, reflect.ValueOf(before), reflect.ValueOf(now))
		}
	case runtime.Unstructured:
		err = d.compareKeys(nil, reflect.ValueOf(was.UnstructuredContent()), reflect.ValueOf(is.(runtime.Unstructured).UnstructuredContent()))
	default:
		err = d.compare(nil, reflect.ValueOf(was).Elem(), reflect.ValueOf(is).Elem())
	}
	if err != nil || len(d.out) == 0 {
		return nil, err
	}
	return json.Marshal(d.out)
}

// compare adds what makes is of was, at a path.
func (d *differ) compare(path []string, was, is reflect.Value) error {
	switch was.Kind() {
	case reflect.Struct:
		if _, opaque := was.Interface().(json.Marshaler); !opaque {
			return d.compareFields(path, was, is)
		}
	case reflect.Pointer, reflect.Interface:
		if !was.IsNil() && !is.IsNil() && was.Elem().Type() == is.Elem().Type() {
			return d.compare(path, was.Elem(), is.Elem())
		}
	case reflect.Map:
		if was.Len() > 0 && is.Len() > 0 {
			return d.compareKeys(path, was, is)
		}
	case reflect.Slice:
		if kind := was.Type().Elem().Kind(); was.Len() == is.Len() && (kind == reflect.Struct || kind == reflect.Interface) {
			for i := range was.Len() {
				if err := d.compare(append(path, strconv.Itoa(i)), was.Index(i), is.Index(i)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	if reflect.DeepEqual(was.Interface(), is.Interface()) || empty(was) && empty(is) {
		return nil
	}
	return d.set(path, is)
}

// empty reports whether a value is one that JSON leaves out.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	}
	return v.IsZero()
}

// compareFields compares the fields of a struct; an embedded one without a name has its place.
func (d *differ) compareFields(path []string, was, is reflect.Value) error {
	t := was.Type()
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		at := path
		switch {
		case name == "-" || !t.Field(i).IsExported():
			continue
		case name != "":
			at = append(path, name)
		case options != "inline" && !t.Field(i).Anonymous:
			return errPatch
		}
		if err := d.compare(at, was.Field(i), is.Field(i)); err != nil {
			return err
		}
	}
	return nil
}

// compareKeys compares maps with keys that are strings.
func (d *differ) compareKeys(path []string, was, is reflect.Value) error {
	if reflect.DeepEqual(was.Interface(), is.Interface()) {
		return nil
	}
	keys := map[string]reflect.Value{}
	for _, m := range []reflect.Value{was, is} {
		for _, key := range m.MapKeys() {
			keys[key.String()] = key
		}
	}
	names := make([]string, 0, len(keys))
	for name := range keys {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		before, now := was.MapIndex(keys[name]), is.MapIndex(keys[name])
		switch at := append(path, name); {
		case !now.IsValid():
			d.out = append(d.out, operation{Op: "remove", Path: pointer(at)})
		case !before.IsValid():
			d.out = append(d.out, operation{Op: "add", Path: pointer(at), Value: now.Interface()})
		default:
			if err := d.compare(at, before, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// set puts a value at a path, or takes what is there away where there is none any more. Parents that did not come are
// put there first.
func (d *differ) set(path []string, is reflect.Value) error {
	if empty(is) && is.Kind() != reflect.String {
		if d.has(path) {
			d.out = append(d.out, operation{Op: "remove", Path: pointer(path)})
		}
		return nil
	}
	for i := 1; i < len(path); i++ {
		if parent := path[:i]; !d.has(parent) {
			d.out = append(d.out, operation{Op: "add", Path: pointer(parent), Value: map[string]any{}})
		}
	}
	d.out = append(d.out, operation{Op: "add", Path: pointer(path), Value: is.Interface()})
	return nil
}

// has reports whether something is at a path of the object that came, or was put there.
func (d *differ) has(path []string) bool {
	at := pointer(path)
	if slices.ContainsFunc(d.out, func(o operation) bool { return o.Path == at && o.Op == "add" }) {
		return true
	}
	decoder := jsontext.NewDecoder(bytes.NewReader(d.text))
	for {
		token, err := decoder.ReadToken()
		if errors.Is(err, io.EOF) || err != nil {
			return false
		}
		if string(decoder.StackPointer()) == at && token.Kind() != jsontext.Kind('}') {
			// A null is as good as nothing.
			return decoder.PeekKind() != 'n'
		}
	}
}

// pointer writes a path as RFC 6901 does.
func pointer(path []string) string {
	var out strings.Builder
	for _, name := range path {
		out.WriteByte('/')
		out.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return out.String()
}
