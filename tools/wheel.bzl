"""The `wheel` rule: files and metadata in, a wheel out that is the same bit for bit each time.

Not rules_python's py_wheel, because a wheel here is bound to one Python and one platform, carries a
licence file and headers, and must build where only the Starlark part of rules_python is packaged.
"""

def _destination(file, strip_prefix):
    if not file.short_path.startswith(strip_prefix):
        fail("%s is not below %s" % (file.short_path, strip_prefix))
    return file.short_path.removeprefix(strip_prefix)

def _wheel_impl(ctx):
    files = {}
    for file in ctx.files.srcs:
        files[_destination(file, ctx.attr.strip_prefix)] = file
    for target, destination in ctx.attr.renamed.items():
        files[destination] = target.files.to_list()[0]
    files["{dist_info}/licenses/LICENSE"] = ctx.file.license

    output = ctx.actions.declare_file("-".join([
        ctx.attr.distribution,
        ctx.attr.version,
        ctx.attr.python_tag,
        ctx.attr.python_tag,
        ctx.attr.platform,
    ]) + ".whl")
    manifest = ctx.actions.declare_file(ctx.label.name + ".json")
    ctx.actions.write(manifest, json.encode_indent({
        "distribution": ctx.attr.distribution,
        "version": ctx.attr.version,
        "tag": "%s-%s-%s" % (ctx.attr.python_tag, ctx.attr.python_tag, ctx.attr.platform),
        "headers": {
            "Summary": ctx.attr.summary,
            "License-Expression": ctx.attr.license_expression,
            "Requires-Python": ctx.attr.requires_python,
        },
        "requires": ctx.attr.requires,
        "description": ctx.file.description.path,
        "entry_points": ctx.attr.entry_points,
        "files": {destination: file.path for destination, file in files.items()},
    }))
    ctx.actions.run(
        executable = ctx.executable._wheelmaker,
        arguments = [manifest.path, output.path],
        inputs = [manifest, ctx.file.description] + files.values(),
        outputs = [output],
        mnemonic = "Wheel",
    )
    return [DefaultInfo(files = depset([output]))]

wheel = rule(
    implementation = _wheel_impl,
    attrs = {
        "description": attr.label(allow_single_file = [".md"], mandatory = True),
        "distribution": attr.string(mandatory = True),
        "entry_points": attr.string_list_dict(doc = "{group: [\"name = module:function\"]}"),
        "license": attr.label(allow_single_file = True, mandatory = True),
        "license_expression": attr.string(mandatory = True, doc = "SPDX"),
        "platform": attr.string(mandatory = True),
        "python_tag": attr.string(mandatory = True, doc = "such as cp311"),
        "renamed": attr.label_keyed_string_dict(
            allow_files = True,
            doc = "{file: its path in the wheel}",
        ),
        "requires": attr.string_list(),
        "requires_python": attr.string(mandatory = True),
        "srcs": attr.label_list(allow_files = True),
        "strip_prefix": attr.string(doc = "what is taken off the paths of srcs"),
        "summary": attr.string(mandatory = True),
        "version": attr.string(mandatory = True),
        "_wheelmaker": attr.label(
            cfg = "exec",
            default = "//tools/wheel:wheelmaker",
            executable = True,
        ),
    },
)
